METRICS = {f"accuracy_{AVERAGE}": "accuracy", f"nll_{AVERAGE}": "NLL", f"ece_{AVERAGE}": "ECE", "mi": "MI",
           f"auroc_mi_error_{AVERAGE}": "AUROC of MI", "vqa_accuracy": "VQA accuracy", "rmse": "RMSE", "nll": "NLL", "crps": "CRPS",
           "coverage_90": "coverage of 90 %"}
shown = {column: title for column, title in METRICS.items() if column in results}
clean = results[results["condition"] == "clean"]
groups = clean.groupby(["experiment", "set", "name"])
means, deviations = groups[list(shown)].mean(), groups[list(shown)].std(ddof=1)
table = means.rename(columns=shown)
table.insert(0, "seeds", groups["seed"].nunique())
table.insert(1, "images", groups["images"].first() if "samples" not in clean else groups["samples"].first())
table
