#!/usr/bin/env python3
"""Hands each epoch of bella to Weights & Biases: train.on_epoch = ["python3", "scripts/on_epoch_wandb.py"].

The row of the epoch comes as a line of JSON on standard input. The run keeps its id in W&B, so that all epochs, those after
an interruption too, belong to one run; `epoch` is the axis, so that an epoch told twice appears once. WANDB_PROJECT,
WANDB_MODE=offline and the other variables of wandb hold as usual.
"""

import json
import sys

import wandb

row = json.load(sys.stdin)
about = {key: row.pop(key) for key in ("experiment", "run", "folder", "seed", "epochs")}
run = wandb.init(project=about["experiment"], id=about["run"], name=about["run"], resume="allow", config=about)
run.define_metric("*", step_metric="epoch")
run.log({key: value for key, value in row.items() if value is not None})
run.finish()
