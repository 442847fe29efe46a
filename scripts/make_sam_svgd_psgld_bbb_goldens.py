#!/usr/bin/env python3
"""Runs the authors' own code for SAM, SVGD and pSGLD, and a package's for Bayes by backprop, on tiny problems in f64, and writes what
came out to tests/fixtures/authors/{sam,svgd,psgld,bbb}.json, to which the tests beside the methods hold bella.

| repository | commit | what is run |
|---|---|---|
| davda54/sam | 3c3afdbd71cff2462ec91c734b3d1170bd0f3707 | `SAM.step` with `torch.optim.SGD`, four times, plain and adaptive |
| dilinwang820/Stein-Variational-Gradient-Descent | 8d8f94974e1b91384dc44991ed5ad9a26212f136 | `SVGD.svgd_kernel` of `python/svgd.py`, also on the products of low-rank factors |
| ChunyuanLI/pSGLD | f0d9e157b3209e6fc4bae98d073daf4c9def181f | `SGLD_RMSprop` of `pSGLD_DNN/algorithms`, five steps, by Octave 7.3 |
| bayesian-torch 0.5.0 | | `LinearReparameterization` with `torch.optim.Adam`, three steps; its divergence is a mean, and is multiplied by the number of weights |

    pip install torch==2.11.0 numpy scipy bayesian-torch==0.5.0      # and the program octave-cli
    python scripts/make_sam_svgd_psgld_bbb_goldens.py SAM SVGD PSGLD

The arguments are folders with these repositories at these commits. `svgd.py` is written for Python 2: its one `print` is left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import torch

from author_code import given

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors"
SAMPLES, INPUTS, CLASSES = 6, 3, 4


def sam(repository):
    sys.path.insert(0, str(repository))
    from sam import SAM

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(21)
    x, labels = torch.randn(SAMPLES, INPUTS), torch.tensor([0, 2, 1, 3, 0, 2])
    starts = torch.randn(2, CLASSES, INPUTS)
    found = {"x": x, "labels": labels, "start": starts.flatten(1), "lr": 0.1}
    for case, rho, adaptive in [("plain", 0.05, False), ("adaptive", 0.5, True)]:
        after = []
        for start in starts:
            layer = torch.nn.Linear(INPUTS, CLASSES, bias=False)
            layer.weight.data.copy_(start)
            optimizer = SAM(layer.parameters(), torch.optim.SGD, rho=rho, adaptive=adaptive, lr=0.1)

            def closure():
                loss = torch.nn.functional.cross_entropy(layer(x), labels)
                loss.backward()
                return loss

            steps = []
            for _ in range(4):
                closure()
                optimizer.step(closure)
                optimizer.zero_grad()
                steps.append(layer.weight.detach().flatten().clone())
            after.append(torch.stack(steps))
        found[case] = {"rho": rho, "after": torch.stack(after, 1)}
    return found


def svgd(repository):
    source = (repository / "python" / "svgd.py").read_text()
    lines = [line if "print 'iter" not in line else line[:len(line) - len(line.lstrip())] + "pass" for line in source.splitlines()]
    module = types.ModuleType("svgd")
    exec("\n".join(lines), module.__dict__)
    random = np.random.default_rng(4)
    found = {}
    for case, count in [("three", 3), ("six", 6)]:
        theta, scores = random.standard_normal((count, 2)), random.standard_normal((count, 2))
        kernel, repulsion = module.SVGD().svgd_kernel(theta, h=-1)
        found[case] = {"theta": theta, "scores": scores, "phi": (kernel @ scores + repulsion) / count}
    found["low_rank"] = low_rank(module.SVGD().svgd_kernel, random)
    return found


def low_rank(kernel_of, random):
    """SVGD on W = s B A of four particles, in two blocks, each with A [1, 3] and then B [2, 1] in the columns of theta. What the authors'
    kernel gives for W goes to the factors by the chain rule: all of it ("weight"), or the repulsion alone, beside a factor's own
    gradient times the sum of the kernel ("own")."""
    count, scale = 4, 2.0
    theta, by_weight = random.standard_normal((count, 10)), random.standard_normal((2, count, 2, 3))
    own, weight = np.zeros((count, 10)), np.zeros((count, 10))
    for block in range(2):
        start = 5 * block
        a, b = theta[:, start:start + 3].reshape(count, 1, 3), theta[:, start + 3:start + 5].reshape(count, 2, 1)

        def by_factors(of):
            of = of.reshape(count, 2, 3)
            by_a, by_b = scale * b.transpose(0, 2, 1) @ of, scale * of @ a.transpose(0, 2, 1)
            return np.concatenate([by_a.reshape(count, 3), by_b.reshape(count, 2)], 1)

        kernel, repulsion = kernel_of((scale * b @ a).reshape(count, 6), h=-1)
        scores = -by_weight[block].reshape(count, 6)
        columns = slice(start, start + 5)
        own[:, columns] = (kernel.sum(1, keepdims=True) * by_factors(scores) + by_factors(repulsion)) / count
        weight[:, columns] = by_factors(kernel @ scores + repulsion) / count
    return {"theta": theta, "by_weight": by_weight, "own": own, "weight": weight}


DRIVER = """
global kept draws at
addpath({algorithms!r}); addpath({own!r});
x = {x}; y = {y}; draws = {noise}; kept = {start}; at = 0;
model = struct('getParameters', @() current(), 'setParameters', @(p) keep(p));
f = @() deal(0, gradient(current(), x, y));
opts = struct('learningRate', {lr}, 'RMSpropDecay', {decay}, 'epsilon', {eps}, 'N', {count});
state = {{}};
for step = 1:{steps}
  [err, state] = SGLD_RMSprop(model, f, opts, state);
  printf('%.17g ', kept); printf('\\n');
end
"""

FUNCTIONS = {
    "current": "function p = current()\n  global kept\n  p = kept;\nend\n",
    "keep": "function keep(p)\n  global kept\n  kept = p;\nend\n",
    "gradient": "function g = gradient(p, x, y)\n  g = 2 * ((p * x' - y) * x) / numel(y);\nend\n",
    # In place of Octave's own draws.
    "randn": "function d = randn(varargin)\n  global draws at\n  at = at + 1;\n  d = draws(at, :);\nend\n",
}


def matrix(values):
    return "[" + "; ".join(" ".join(repr(float(one)) for one in row) for row in np.atleast_2d(values)) + "]"


def psgld(repository):
    random = np.random.default_rng(8)
    x, y, start = random.standard_normal((7, INPUTS)), random.standard_normal(7), random.standard_normal(INPUTS)
    noise, steps, decay, eps, lr, count = random.standard_normal((5, INPUTS)), 5, 0.9, 0.01, 0.05, 40
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FUNCTIONS.items():
            (Path(folder) / f"{name}.m").write_text(text)
        driver = Path(folder) / "driver.m"
        algorithms = str(repository / "pSGLD_DNN" / "algorithms")
        driver.write_text(DRIVER.format(algorithms=algorithms, own=folder, x=matrix(x), y=matrix(y), noise=matrix(noise),
                                        start=matrix(start), lr=lr, decay=decay, eps=eps, count=count, steps=steps))
        done = subprocess.run(["octave-cli", "--no-gui", "--quiet", str(driver)], check=True, capture_output=True, text=True)
    after = np.array([[float(one) for one in line.split()] for line in done.stdout.strip().splitlines()])
    assert after.shape == (steps, INPUTS), done.stdout
    return {"x": x, "y": y, "start": start, "noise": noise, "after": after, "decay": decay, "eps": eps, "lr": lr, "ess": count}


def bbb():
    from bayesian_torch.layers import LinearReparameterization

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(13)
    images, decay, temperature, rate = 50.0, 0.02, 0.7, 0.1
    x, labels = torch.randn(SAMPLES, INPUTS), torch.tensor([0, 2, 1, 3, 0, 2])
    noise = torch.randn(3, CLASSES, INPUTS)
    # What it calls the variance of the prior is the deviation.
    layer = LinearReparameterization(INPUTS, CLASSES, prior_variance=(images * decay) ** -0.5, bias=False)
    layer.rho_weight.data.fill_(-1.5)
    start, divergences, means, rhos = layer.mu_weight.detach().flatten().clone(), [], [], []
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
    for draw in noise:
        optimizer.zero_grad()
        with given(normal_=[draw]):
            logits, divergence = layer(x)
        divergence = divergence * CLASSES * INPUTS
        (torch.nn.functional.cross_entropy(logits, labels) + temperature / images * divergence).backward()
        optimizer.step()
        divergences.append(divergence.item())
        means.append(layer.mu_weight.detach().flatten().clone())
        rhos.append(layer.rho_weight.detach().flatten().clone())
    return {"x": x, "labels": labels, "noise": noise.flatten(1), "start": start, "rho": -1.5, "divergences": torch.tensor(divergences),
            "means": torch.stack(means), "rhos": torch.stack(rhos), "lr": rate, "ess": images, "weight_decay": decay,
            "temperature": temperature}


def numbers(value):
    """Returns arrays as nested lists."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.tolist()
    return {key: numbers(item) for key, item in value.items()} if isinstance(value, dict) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("sam", "svgd", "psgld"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    for name, make in [("sam", sam), ("svgd", svgd), ("psgld", psgld), ("bbb", lambda _: bbb())]:
        text = json.dumps(numbers(make(getattr(args, name, None))), separators=(",", ":"))
        (OUT / f"{name}.json").write_text(text + "\n")
        print(name, len(text), "bytes")


if __name__ == "__main__":
    main()
