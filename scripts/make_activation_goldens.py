#!/usr/bin/env python3
"""Writes tests/fixtures/activations.json: what each activation of transformers (`ACT2FN`) makes of some numbers, by its name in a config. The test
of src/model/values.rs holds bella to it.

    pip install transformers==5.24.0 torch==2.15.0
    python scripts/make_activation_goldens.py
"""

import json
from pathlib import Path

import torch
from transformers.activations import ACT2FN

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "activations.json"


def main():
    inputs = torch.linspace(-12, 12, 33, dtype=torch.float64)
    told = {}
    for name in sorted(ACT2FN):
        try:
            told[name] = ACT2FN[name](inputs).tolist()
        except Exception:  # noqa: BLE001: some have weights or take images
            continue
    OUT.write_text(json.dumps(dict(inputs=inputs.tolist(), outputs=told)) + "\n")
    print(OUT, OUT.stat().st_size, "bytes;", *told)


if __name__ == "__main__":
    main()
