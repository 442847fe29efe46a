#!/usr/bin/env python3
"""Hands each epoch of bella to MLflow: train.on_epoch = ["python3", "scripts/on_epoch_mlflow.py"].

The row of the epoch comes as a line of JSON on standard input. The run is found again by the tag `bella_run`, so that all
epochs, those after an interruption too, belong to one run. MLFLOW_TRACKING_URI names the server or the folder, as usual.
"""

import json
import sys

import mlflow

row = json.load(sys.stdin)
about = {key: row.pop(key) for key in ("experiment", "run", "folder", "seed", "epochs")}
experiment = mlflow.set_experiment(about["experiment"])
found = mlflow.search_runs([experiment.experiment_id], f"tags.bella_run = '{about['run']}'", output_format="list")
with mlflow.start_run(run_id=found[0].info.run_id if found else None, run_name=about["run"]):
    if not found:
        mlflow.set_tag("bella_run", about["run"])
        mlflow.log_params(about)
    mlflow.log_metrics({key: value for key, value in row.items() if value is not None}, step=row["epoch"])
