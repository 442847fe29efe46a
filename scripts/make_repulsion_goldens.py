#!/usr/bin/env python3
"""Runs the authors' own updates of repulsive ensembles and function-space SVGD on a tiny network in f64, and writes what came out
to tests/fixtures/authors/repulsion.json, to which the tests of `[method.svgd]` hold bella.

| repository | commit | what is run |
|---|---|---|
| ratschlab/repulsive_ensembles | 6dcb4c0 | `WGD.phi` and `f_WGD.phi` with kernel density estimates, `f_s_SVGD.phi` on logits and on probabilities |

    pip install torch==2.11.0
    python scripts/make_repulsion_goldens.py REPULSIVE_ENSEMBLES

The argument is a folder with this repository at this commit. Its score of a functional prior is replaced by zeros, since bella's
prior is the optimizer's.
"""

import argparse
import importlib.util
import json
import types
from pathlib import Path

import torch

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors" / "repulsion.json"
PARTICLES, IMAGES, INPUTS, WIDTH, CLASSES, TRAINING_IMAGES = 4, 6, 3, 2, 3, 50


def module(repository, path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, repository / path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Ensemble:
    """Two layers with tanh between them; a particle is the rows of the first and of the second weight."""

    net = types.SimpleNamespace(classification=True)

    def forward(self, x, particles):
        first = particles[:, :WIDTH * INPUTS].view(-1, WIDTH, INPUTS)
        second = particles[:, WIDTH * INPUTS:].view(-1, CLASSES, WIDTH)
        logits = torch.tanh(x @ first.transpose(1, 2)) @ second.transpose(1, 2)
        return [logits.softmax(2), logits]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=Path)
    repository = parser.parse_args().repository
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(11)
    kernel = module(repository, "utils/kernel.py").RBF
    flows, stein = module(repository, "methods/WGD.py"), module(repository, "methods/f_SVGD.py")
    posterior = module(repository, "utils/distributions.py").Unorm_post
    config = types.SimpleNamespace(gamma=1.0, pred_dist_std=1.0)
    prior = types.SimpleNamespace(sample=lambda size: torch.zeros(*size, WIDTH * INPUTS + CLASSES * WIDTH))
    target = posterior(Ensemble(), prior, config, TRAINING_IMAGES, add_prior=False)
    no_prior = types.SimpleNamespace(compute_score_gradients=lambda at, _: torch.zeros_like(at))
    theta = torch.randn(PARTICLES, WIDTH * INPUTS + CLASSES * WIDTH)
    x, labels = torch.randn(IMAGES, INPUTS), torch.tensor([0, 2, 1, 1, 0, 2])
    one_hot = torch.nn.functional.one_hot(labels, CLASSES).double()
    schedule = torch.ones(1)
    updates = {
        "wasserstein_weights": flows.WGD(target, kernel(), None, config, schedule).phi(theta, x, one_hot, 0)[0],
        "wasserstein_logits": flows.f_WGD(target, kernel(), None, config, schedule, no_prior, 1).phi(theta, x, one_hot, 0)[0],
        "stein_logits": stein.f_s_SVGD(target, kernel(), None, no_prior, config, schedule, 1).phi(theta, x, one_hot, 0)[0],
        "stein_probabilities": stein.f_s_SVGD(target, kernel(), None, no_prior, config, schedule, 0).phi(theta, x, one_hot, 0)[0],
        "wasserstein_probabilities": flows.f_WGD(target, kernel(), None, config, schedule, no_prior, 0).phi(theta, x, one_hot, 0)[0],
    }
    golden = {"theta": theta, "x": x, "labels": labels, **{name: update.detach() for name, update in updates.items()}}
    golden = {name: value.tolist() for name, value in golden.items()} | {"training_images": TRAINING_IMAGES}
    OUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
