#!/usr/bin/env python3
"""Runs the authors' own code for FHBI (Truong et al. 2025, arXiv 2410.04196) on a tiny problem in f64, and writes what came out to
tests/fixtures/authors/fhbi.json, to which the tests of SVGD hold bella.

| repository | commit | what is run |
|---|---|---|
| tranquyenbk173/FHVI | b87030c179744c4d6cf1682ab8cba324e86fc460 | `FHBI.step1` and `FHBI.step2` of `src/utils.py`, three times |

    pip install torch==2.11.0 numpy scipy pandas
    python scripts/make_fhbi_goldens.py FHVI

The argument is a folder with the repository at this commit. Its step knows parameters by the names of its vision transformer, and works
on a GPU: here the parameters are small ones with these names, `cuda()` does nothing, and the loss of a particle is Σ a (θ − c)⁴, with a and c
that are written beside what came out.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "fhbi.json"
PARTICLES, STEPS = 3, 3
LR, RHO, SIGMA = 0.02, 0.05, 0.8
# Two blocks, whose parameters have one size each in both, and a classifier.
SHAPES = {"proj_q.w_a": (2, 3), "proj_q.w_b": (3, 2), "proj_v.w_a": (2, 2), "proj_v.w_b": (4, 2)}
CLASSIFIER = {"weight": (2, 4), "bias": (2,)}


def names_of(particle):
    """The names of a particle's parameters in the authors' network, with their shapes."""
    blocks = {f"blocks.{block}.{name}.layer.{particle}.weight": shape for block in range(2) for name, shape in SHAPES.items()}
    return blocks | {f"fc.layer.{particle}.{name}": shape for name, shape in CLASSIFIER.items()}


class Network:
    """Parameters with the names of the authors' network."""

    def __init__(self, start):
        self.lora_vit = self
        self.parameters_by_name = {}
        particles = [names_of(particle) for particle in range(PARTICLES)]
        # The authors' code collects a parameter of all particles, one particle after the other.
        for column in zip(*(each.items() for each in particles)):
            for particle, (name, shape) in enumerate(column):
                place = list(particles[particle]).index(name)
                self.parameters_by_name[name] = torch.nn.Parameter(start[particle][place].clone().view(shape))

    def named_parameters(self):
        return self.parameters_by_name.items()

    def rows(self):
        """The parameters of each particle, one row each."""
        of = lambda particle: [self.parameters_by_name[name].detach().flatten() for name in names_of(particle)]
        return torch.stack([torch.cat(of(particle)) for particle in range(PARTICLES)])


class Module:
    def manual_backward(self, loss):
        loss.backward()


def run(repository):
    sys.path.insert(0, str(repository))
    from src.utils import FHBI

    torch.Tensor.cuda = lambda self: self
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(11)
    sizes = [torch.Size(shape).numel() for shape in names_of(0).values()]
    start = [[torch.randn(size) for size in sizes] for _ in range(PARTICLES)]
    network = Network(start)
    a, c = torch.rand(sum(sizes)) + 0.5, torch.randn(sum(sizes)) * 0.3
    parameters = list(network.parameters_by_name.values())
    optimizer = FHBI(parameters, RHO, SIGMA, LR, (0.9, 0.999), 0.0, PARTICLES, Module(), network)

    def loss():
        total = 0.0
        for particle in range(PARTICLES):
            row = torch.cat([network.parameters_by_name[name].flatten() for name in names_of(particle)])
            total = total + (a * (row - c) ** 4).sum()
        return total

    found = {"sizes": sizes, "a": a, "c": c, "lr": LR, "rho": RHO, "sigma": SIGMA, "start": network.rows()}
    climbed, after = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        original, kernel = optimizer.step1()
        climbed.append(network.rows())
        optimizer.zero_grad()
        loss().backward()
        optimizer.step2(original, kernel)
        after.append(network.rows())
    return found | {"climbed": torch.stack(climbed), "after": torch.stack(after)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("repository", type=Path)
    arguments = parser.parse_args()
    plain = lambda value: value.tolist() if isinstance(value, torch.Tensor) else value
    OUT.write_text(json.dumps({name: plain(value) for name, value in run(arguments.repository).items()}) + "\n")


if __name__ == "__main__":
    main()
