#!/usr/bin/env python3
"""Writes a TorchScript archive of a multilayer perceptron for rows of numbers, as `[data.uci]` has them. torch 2.11.0.

    python scripts/make_mlp.py mlp-6.pt --inputs 6 --hidden 50

The last layer is left to bella's head, so that the archive ends with ReLU. The weights are those of `torch.nn.Linear` with a fixed seed;
`[subspace.full] start = "random"` draws others for each particle.
"""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, required=True, help="numbers of a row")
    parser.add_argument("--hidden", type=int, nargs="+", default=[50], help="units of each hidden layer")
    parser.add_argument("output")
    args = parser.parse_args()
    torch.manual_seed(0)
    widths = [args.inputs, *args.hidden]
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    torch.jit.script(nn.Sequential(*layers).eval()).save(args.output)


if __name__ == "__main__":
    main()
