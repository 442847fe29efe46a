#!/usr/bin/env python3
"""Prints the traces of src/methods/entries/ivon/tests.rs: means, Hessians and momenta after some steps of the authors' optimizer on a
quadratic, with given noise. Made with ivon-opt 0.1.3, torch 2.11.0.

    pip install torch==2.11.0 ivon-opt==0.1.3
    python scripts/make_ivon_goldens.py
"""

import ivon
import torch

torch.set_default_dtype(torch.float64)
CURVATURE, CENTRE = torch.tensor([1.0, 4.0, 0.5, 2.0]), torch.tensor([1.0, -2.0, 0.5, 0.0])
NOISE = torch.tensor([[0.5, -1.0, 0.25, 2.0], [-0.75, 0.1, 1.5, -0.3], [1.2, 0.4, -0.6, 0.9]])
USUAL = dict(lr=0.1, ess=100.0, hess_init=1.0, beta1=0.9, beta2=0.999, weight_decay=1e-4)
CASES = {
    "a, one step": (1, {}),
    "a": (3, {}),
    "b": (3, dict(lr=0.03, ess=1e6, hess_init=3e-4, beta2=0.99999, weight_decay=0.0, clip_radius=1e-3, rescale_lr=False)),
    "c": (3, dict(hess_init=0.5, beta2=0.99, weight_decay=2e-4, mc_samples=2)),
    "d": (3, dict(hess_approx="gradsq")),
    "e": (3, dict(debias=False)),
    "f": (3, dict(hess_approx="gradsq", mc_samples=2)),
}


def trace(steps, options):
    mean = torch.nn.Parameter(torch.tensor([0.1, 0.2, -0.3, 0.4]))
    optimizer = ivon.IVON([mean], **{**USUAL, **options})
    for step in range(steps):
        for sample in range(options.get("mc_samples", 1)):
            torch.randn = lambda *_, **__: NOISE[(step + sample) % len(NOISE)]
            with optimizer.sampled_params(train=True):
                optimizer.zero_grad()
                (0.5 * CURVATURE * (mean - CENTRE) ** 2).sum().backward()
        optimizer.step()
    group = optimizer.param_groups[0]
    return mean, group["hess"], group["momentum"]


for name, (steps, options) in CASES.items():
    print(name, *([round(value, 12) for value in part.tolist()] for part in trace(steps, options)))
