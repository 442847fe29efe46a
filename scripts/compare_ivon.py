#!/usr/bin/env python3
"""One hundred steps of the public ivon-opt package on a small ViT, for tests/library/ivon.rs to compare with.

    pip install torch ivon-opt && python scripts/compare_ivon.py > tests/fixtures/ivon_steps.json

The fixture ViT is trained whole, in f64, on eight made-up images; the noise is a formula, so that both sides have the same.
Printed: for each parameter its sum and its norm after the last step, and the loss of every tenth step.
"""
import json
import math
import pathlib

import ivon
import torch

STEPS = 100
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073], dtype=torch.float64).view(1, 3, 1, 1)
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711], dtype=torch.float64).view(1, 3, 1, 1)


def noise(step, sizes):
    """sqrt(2) sin(0.37 j + 1.1 step + 0.5 (size mod 7)) for element j of a parameter of so many elements."""
    rows = [math.sqrt(2) * torch.sin(0.37 * torch.arange(size, dtype=torch.float64) + 1.1 * step + 0.5 * (size % 7))
            for size in sizes]
    return torch.cat(rows)


def main():
    fixture = pathlib.Path(__file__).parent.parent / "tests/fixtures/timm_scripted.pt"
    model = torch.jit.load(fixture).double().train(False)
    named = dict(model.named_parameters())
    for parameter in named.values():
        parameter.requires_grad_(True)
    values = torch.arange(8 * 3 * 32 * 32) * 7919 % 256
    images = (values.view(8, 3, 32, 32).double() / 255 - MEAN) / STD
    labels = torch.arange(8) % 10
    sizes = [parameter.numel() for parameter in named.values()]
    optimizer = ivon.IVON(named.values(), lr=0.05, ess=400.0, hess_init=0.5, beta1=0.9, beta2=0.99, weight_decay=1e-3)
    losses = []
    randn = torch.randn
    for step in range(STEPS):
        torch.randn = lambda *args, **options: noise(step, sizes)
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
        torch.randn = randn
        optimizer.step()
        if step % 10 == 0:
            losses.append(loss.item())
    parameters = {name: [p.sum().item(), p.norm().item()] for name, p in named.items()}
    print(json.dumps({"losses": losses, "parameters": parameters}, indent=1))


if __name__ == "__main__":
    main()
