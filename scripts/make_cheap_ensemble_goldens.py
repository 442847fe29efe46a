#!/usr/bin/env python3
"""Runs a linear layer of BatchEnsemble with given factors, and the starts of LoRA-Ensemble's factors, and writes what came out to
tests/fixtures/authors/cheap_ensembles.json, to which the tests of `[subspace.rank-one]` and `[subspace.low-rank]` hold bella.

| repository | commit | what is run |
|---|---|---|
| ENSTA-U2IS-AI/torch-uncertainty | 0d0df2b | `BatchLinear`, which follows google/edward2's, in f64: outputs, gradients, two steps of gradient descent |
| prs-eth/LoRA-Ensemble | be52ff5 | `LoRA.initialize_weights`, of which only statistics can be compared |

    pip install torch==2.11.0 einops
    python scripts/make_cheap_ensemble_goldens.py TORCH_UNCERTAINTY LORA_ENSEMBLE

The arguments are folders with these repositories at these commits.
"""

import argparse
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "cheap_ensembles.json"
MEMBERS, INPUTS, OUTPUTS, SAMPLES, RATE, STEPS = 3, 7, 5, 4, 0.02, 2
RANK, WIDTH = 8, 768


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def wave(shape, phase):
    """Values that any language computes."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).view(shape)


def batch_ensemble(repository):
    layer = module(repository / "src/torch_uncertainty/layers/batch_ensemble.py").BatchLinear
    layer = layer(INPUTS, OUTPUTS, MEMBERS).double()
    parts = {"inputs": layer.r_group, "outputs": layer.s_group, "bias": layer.bias}
    with torch.no_grad():
        layer.linear.weight.copy_(wave((OUTPUTS, INPUTS), 0.3))
        layer.r_group.copy_(1 + 0.5 * wave((MEMBERS, INPUTS), 1.1))
        layer.s_group.copy_(1 + 0.5 * wave((MEMBERS, OUTPUTS), 1.9))
        layer.bias.copy_(wave((MEMBERS, OUTPUTS), 1.3))
    # Each member sees all samples, one member after the other.
    x, target = wave((SAMPLES, INPUTS), 0.9).repeat(MEMBERS, 1), wave((SAMPLES, OUTPUTS), 2.1).repeat(MEMBERS, 1)
    optimizer = torch.optim.SGD(list(parts.values()), lr=RATE)
    out = {"start": layer(x).view(MEMBERS, SAMPLES, OUTPUTS).tolist()}
    for step in range(STEPS):
        optimizer.zero_grad()
        (layer(x) - target).square().sum().backward()
        if step == 0:
            out["gradients"] = {name: value.grad.tolist() for name, value in parts.items()}
        optimizer.step()
    return out | {"end": layer(x).view(MEMBERS, SAMPLES, OUTPUTS).tolist()}


def starts(repository):
    """The statistics of A `[8, 768]` over 40 draws; B is 0."""
    stand_in = types.ModuleType("utils_GPU")
    stand_in.DEVICE = "cpu"
    sys.modules["utils_GPU"] = stand_in
    lora = module(repository / "models/lora.py")
    kinds = {
        "normal": (lora.Init_Weight.NORMAL, {"mean": 0, "std": 0.03}),
        "normal-default": (lora.Init_Weight.NORMAL, None),
        "kaiming": (lora.Init_Weight.KAIMING_UNIFORM, None),
        "xavier": (lora.Init_Weight.XAVIER_UNIFORM, {"gain": 10}),
    }
    found = {}
    for name, (kind, settings) in kinds.items():
        layers = [lora.LoRA(torch.nn.Identity(), RANK, WIDTH, True, kind, settings) for _ in range(40)]
        a = torch.stack([layer.w_a.weight.detach() for layer in layers]).double()
        assert all(layer.w_b.weight.abs().max() == 0 for layer in layers)
        found[name] = {"std": a.std().item(), "largest": a.abs().max().item(), "fourth": a.pow(4).mean().item()}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("torch_uncertainty", type=Path)
    parser.add_argument("lora_ensemble", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(5)
    golden = {"batch_ensemble": batch_ensemble(arguments.torch_uncertainty), "starts": starts(arguments.lora_ensemble)}
    OUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
