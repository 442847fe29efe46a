#!/usr/bin/env python3
"""Writes a small table in the form of iWildCam2020-WILDS v2.0, and what the package `wilds` itself reads and measures of it.

    pip install --no-deps wilds==2.0.0; pip install pandas==3.1.1 scikit-learn==1.9.1 torch torchvision pytz outdated ogb
    python scripts/make_wilds_fixtures.py            # tests/fixtures/data/iwildcam

`metadata.csv` has the columns that the package reads, 182 species and 5 parts. `expected.json` has the files, labels and traps of each
part as `IWildCamDataset` gives them, and `IWildCamDataset.eval` on made-up predictions for the test part.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from wilds.datasets.iwildcam_dataset import IWildCamDataset

OUT = Path(__file__).parent.parent / "tests/fixtures/data/iwildcam"
TRAPS = {"train": [0, 1, 2, 3], "id_val": [0, 2], "id_test": [1, 3], "val": [4, 5], "test": [6, 7, 8]}
COUNTS = {"train": 190, "id_val": 9, "id_test": 11, "val": 13, "test": 24}


def table():
    rng = np.random.default_rng(11)
    rows = []
    for part, count in COUNTS.items():
        for at in range(count):
            y = at if part == "train" and at < 182 else int(rng.integers(0, 12))
            rows.append({"split": part, "location_remapped": int(rng.choice(TRAPS[part])), "y": y, "filename": f"{part}-{at:03}.jpg"})
    rows = [rows[at] for at in rng.permutation(len(rows))]
    frame = pd.DataFrame(rows)
    frame["location_remapped"] = frame["location_remapped"].map({old: new for new, old in enumerate(sorted(set(frame["location_remapped"])))})
    frame["sequence_remapped"] = np.arange(len(frame))
    frame["datetime"] = "2013-06-05 05:44:19.000"
    frame["category_id"] = frame["y"] + 100
    return frame


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    table().to_csv(OUT / "metadata.csv", index=False)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "iwildcam_v2.0"
        (folder / "train").mkdir(parents=True)
        (folder / "metadata.csv").write_bytes((OUT / "metadata.csv").read_bytes())
        (folder / "RELEASE_v2.0.txt").write_text("")
        dataset = IWildCamDataset(root_dir=root, download=False)
    parts = {}
    for part, number in dataset.split_dict.items():
        kept = np.where(dataset.split_array == number)[0]
        parts[part] = {
            "files": [str(name) for name in dataset._input_array[kept]],
            "y": dataset.y_array[kept].tolist(),
            "location": dataset.metadata_array[kept, dataset.metadata_fields.index("location")].tolist(),
        }
    y = torch.tensor(parts["test"]["y"])
    rng = np.random.default_rng(3)
    predicted = torch.tensor([int(c) if rng.random() < 0.6 else int(rng.integers(0, 40)) for c in y])
    measured, _ = dataset.eval(predicted, y, None)
    evaluated = {"y": y.tolist(), "predicted": predicted.tolist(), **{key: float(value) for key, value in measured.items()}}
    expected = {"classes": int(dataset.n_classes), "parts": parts, "evaluated": evaluated}
    text = json.dumps(expected, indent=1)
    (OUT / "expected.json").write_text(re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text) + "\n")
    print(measured)


if __name__ == "__main__":
    sys.exit(main())
