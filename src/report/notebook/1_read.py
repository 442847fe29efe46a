import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from safetensors import safe_open

RESULTS = Path({results})
AVERAGE = "lm"  # "lm": softmax of the averaged logits; "pm": averaged probabilities

# Every experiment has a CSV file: a row per run, test set and condition. bench.csv holds timings, and the files of
# out-of-distribution results and of conformal sets have other columns.
files = [f for f in sorted(RESULTS.glob("*.csv")) if f.stem != "bench" and not f.stem.endswith(("-ood", "-conformal"))]
assert files, f"{RESULTS}: no results files"
results = pd.concat([pd.read_csv(f, dtype={"run": str, "images": str, "epsilon": float}) for f in files], ignore_index=True)
for column in ("predictive", "attack", "shift_source"):
    results[column] = results[column].astype(object).fillna("") if column in results else ""
results["name"] = (results["subspace"].fillna("") + " " + results["method"].fillna("checkpoint") + " " + results["predictive"]).str.strip()
# Runs are seeds of each other if they share `config`, the hash of their settings without the seed. A run without it stands alone,
# and of two runs with one seed the last one counts. Names tell the settings in which the runs of one name differ.
results["config"] = (results["config"] if "config" in results else pd.Series(np.nan, results.index)).fillna(results["run"])
keys = [key for key in ("experiment", "config", "seed", "predictive", "set", "condition", "images") if key in results]
results = results.drop_duplicates(keys, keep="last").copy()
for (_, base), part in list(results.groupby(["experiment", "name"])):
    if part["config"].nunique() > 1:
        differing = [c for c in part if "." in c and part[c].astype(str).nunique() > 1]
        told = part.apply(lambda row: ", ".join(f"{c.rsplit('.')[-1]} = {row[c]}" for c in differing if pd.notna(row[c])), axis=1)
        clear = part["config"].groupby(told).transform("nunique") == 1
        results.loc[part.index, "name"] = base + ", " + told.where(clear, told + " " + part["config"].astype(str))
# Results on different images of one set are not averaged: each set of images has a name of its own. Published corruptions have
# images for each condition.
results["stored_set"] = results["set"]
if "images" in results:
    images = results["images"].fillna("unknown")
    part = results["condition"].where(results["shift_source"] == "published", "")
    mixed = images.groupby([results["set"], part]).transform("nunique").groupby(results["set"]).transform("max") > 1
    count = results["samples"].astype("Int64").astype(str) + " images, " if "samples" in results else ""
    results["set"] = results["set"].where(~mixed, results["set"] + " [" + count + images + "]")
print(f"{len(results)} rows of {results['run'].nunique()} runs in {len(files)} files")
