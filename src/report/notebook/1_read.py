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
results = pd.concat([pd.read_csv(f, dtype={"run": str, "epsilon": float}) for f in files], ignore_index=True)
for column in ("predictive", "attack"):
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
print(f"{len(results)} rows of {results['run'].nunique()} runs in {len(files)} files")
