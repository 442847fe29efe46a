#!/usr/bin/env python3
"""Writes tests/fixtures/laplace_regression.json: Laplace approximations of the last layer of a network that predicts a number, by laplace-torch
0.3 (curvlinops-for-pytorch 3.0.1, torch 2.11.0) with the likelihood `regression`.

    pip install laplace-torch==0.3
    python scripts/make_laplace_regression_goldens.py tests/fixtures/laplace_regression.json

The features, the weights and the numbers are in the file, so that nothing is drawn again.
"""

import json
import sys
from pathlib import Path

import torch
from laplace import Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, TESTS, WIDTH = 14, 5, 3
SIGMA, PRECISION = 0.7, 2.0


class Features(nn.Module):
    """Features that are given, and a last layer."""

    def __init__(self):
        super().__init__()
        self.identity = nn.Identity()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.identity(x))


def main():
    torch.manual_seed(38)
    torch.set_default_dtype(torch.float64)
    x, tests = torch.randn(SAMPLES, WIDTH), torch.randn(TESTS, WIDTH)
    y = x @ torch.tensor([[0.5], [-1.0], [0.3]]) + 0.2 + SIGMA * torch.randn(SAMPLES, 1)
    model = Features()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[0.4, -0.8, 0.1]]))
        model.head.bias.copy_(torch.tensor([0.25]))
    found = {}
    for structure in ["full", "diag", "kron"]:
        fitted = Laplace(
            model, "regression", subset_of_weights="last_layer", hessian_structure=structure, sigma_noise=SIGMA, prior_precision=PRECISION
        )
        fitted.fit(DataLoader(TensorDataset(x, y), batch_size=SAMPLES))
        mean, variance = fitted(tests)
        found[structure] = {
            "mean": mean.flatten().tolist(),
            "variance": variance.flatten().tolist(),
            "log_likelihood": float(fitted.log_likelihood),
            "evidence": float(fitted.log_marginal_likelihood()),
        }
    golden = {
        "sigma": SIGMA,
        "precision": PRECISION,
        "x": x.tolist(),
        "y": y.flatten().tolist(),
        "tests": tests.tolist(),
        "weight": model.head.weight.flatten().tolist(),
        "bias": model.head.bias.tolist(),
        "found": found,
    }
    Path(sys.argv[1]).write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
