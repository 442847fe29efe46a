#!/usr/bin/env python3
"""Golden batches of BatchBALD, chosen by the authors' package batchbald_redux 2.0.5 (PyPI, Apache 2.0).

    python scripts/make_batchbald_goldens.py > tests/fixtures/authors/batchbald.json

Joint labels are enumerated exactly: there are fewer of them than the samples that the package would draw.
"""
import json

import torch
from batchbald_redux.batchbald import get_batchbald_batch

SAMPLES, MEMBERS, CLASSES, COUNT = 25, 6, 3, 4


def main():
    torch.manual_seed(3)
    probabilities = (2.5 * torch.randn(SAMPLES, MEMBERS, CLASSES, dtype=torch.float64)).softmax(-1)
    probabilities[7] = probabilities[3]
    batch = get_batchbald_batch(probabilities.log(), COUNT, 100_000, dtype=torch.float64)
    print(json.dumps({"probabilities": probabilities.tolist(), "indices": list(map(float, batch.indices)),
                      "scores": list(map(float, batch.scores))}))


if __name__ == "__main__":
    main()
