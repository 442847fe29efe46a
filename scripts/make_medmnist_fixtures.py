#!/usr/bin/env python3
"""Writes small files in the form of MedMNIST by numpy, and what the package `medmnist` itself reads of them.

    pip install medmnist==3.0.2 numpy==2.4.6 pillow torch
    python scripts/make_medmnist_fixtures.py         # tests/fixtures/data/medmnist

`expected.json` has, for each file and split, the labels and the SHA-256 of all pixels `[N, 3, H, W]` of `Dataset(…, as_rgb=True)`, and for
every set of flat images with one label each what the package states of it (classes, numbers of images).
"""

import hashlib
import json
import re
from pathlib import Path

import medmnist
import numpy as np
from medmnist import INFO
import medmnist.dataset as sets

OUT = Path(__file__).parent.parent / "tests/fixtures/data/medmnist"
FILES = [("pathmnist", 28, True), ("bloodmnist", 28, False), ("breastmnist", 28, True), ("dermamnist", 224, True)]
COUNTS = {"train": 7, "val": 2, "test": 3}


def images(rng, count, side, channels):
    corners = rng.integers(0, 256, (count, 2, 2, channels)).astype(float)
    ramp = np.linspace(0, 1, side)
    rows = corners[:, :1] * (1 - ramp)[None, :, None, None] + corners[:, 1:] * ramp[None, :, None, None]
    whole = rows[:, :, :1] * (1 - ramp)[None, None, :, None] + rows[:, :, 1:] * ramp[None, None, :, None]
    return np.round(whole).astype(np.uint8).reshape((count, side, side) + ((3,) if channels == 3 else ()))


def stated(info):
    return {"classes": list(info["label"].values()), "counts": [info["n_samples"][s] for s in ("train", "val", "test")]}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    expected = {"version": medmnist.__version__, "all": {}}
    for flag, info in INFO.items():
        if not flag.endswith("3d") and not info["task"].startswith("multi-label"):
            expected["all"][flag] = stated(info)
    for flag, side, compressed in FILES:
        info = INFO[flag]
        stem = flag if side == 28 else f"{flag}_{side}"
        arrays = {}
        for split, count in COUNTS.items():
            count = count if side == 28 else 1
            arrays[f"{split}_images"] = images(rng, count, side, info["n_channels"])
            arrays[f"{split}_labels"] = rng.integers(0, len(info["label"]), (count, 1)).astype(np.uint8)
        (np.savez_compressed if compressed else np.savez)(OUT / f"{stem}.npz", **arrays)
        found = {"info": stated(info)}
        for split in COUNTS:
            dataset = getattr(sets, info["python_class"])(split=split, root=OUT, size=side, as_rgb=True)
            pairs = [dataset[at] for at in range(len(dataset.imgs))]
            pixels = np.stack([np.asarray(image).transpose(2, 0, 1) for image, _ in pairs])
            found[split] = {
                "labels": [int(label[0]) for _, label in pairs],
                "sha256": hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest(),
            }
        expected[stem] = found
    text = json.dumps(expected, indent=1)
    (OUT / "expected.json").write_text(re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text) + "\n")


if __name__ == "__main__":
    main()
