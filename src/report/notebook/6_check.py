# The numbers of the CSV files, computed again from the saved predictions.
rows = []
for (experiment, run, test_set, predictive), file in predictions.items():
    logits, labels, weights, about = read(file)
    if labels is None:
        continue
    probabilities = averaged(logits, weights)
    accuracy = (probabilities.argmax(axis=1) == labels).mean()
    nll = -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-300)).mean()
    ece = sum(count * abs(confidence - hit) for count, confidence, hit in reliability(probabilities, labels)) / len(labels)
    same = (clean["experiment"] == experiment) & (clean["run"] == run) & (clean["set"] == test_set) & (clean["predictive"] == predictive)
    stored = clean[same].iloc[0] if same.any() else {}
    rows.append({"experiment": experiment, "run": run, "set": test_set, "predictive": predictive, "accuracy": accuracy,
                 "NLL": nll, "ECE": ece, "MI": mutual_information(logits, weights).mean(),
                 "difference": max((abs(value - stored[f"{key}_{AVERAGE}"]) for key, value in
                                    (("accuracy", accuracy), ("nll", nll), ("ece", ece)) if f"{key}_{AVERAGE}" in stored), default=np.nan)})
checked = pd.DataFrame(rows)
checked
