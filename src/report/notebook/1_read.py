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
    results[column] = results[column].fillna("") if column in results else ""
results["name"] = (results["subspace"].fillna("") + " " + results["method"].fillna("checkpoint") + " " + results["predictive"]).str.strip()
print(f"{len(results)} rows of {results['run'].nunique()} runs in {len(files)} files")
