#!/usr/bin/env python3
"""Runs the authors' own code for IBDR and VBLL on tiny problems in f64, and writes what came out to
tests/fixtures/authors/{ibdr,vbll}.json, to which the tests beside the methods hold bella.

| code | version | what is run |
|---|---|---|
| ngocquanofficial/DRO | src/model.py of 58efd5f0a7ab21aa440192887f18e64498e7c941, src/utils.py of 9026ccc95e80907cb952080d10253dddd8fdc538 | `training_step` once with its optimizer `DRO` around SGD, `euclid_distance`, `log_det` |
| vbll | 0.4.9 | `DiscClassification`, `diagonal` and `dense`: loss, divergence, gradients, moments of the logits, three steps of Adam; `lowrank`: bound, divergence and gradients, the latter of one `LowRankNormal` over the weights of all classes, which share its factor here |

    pip install torch==2.11.0 vbll==0.4.9
    python scripts/make_ibdr_vbll_goldens.py DRO

The argument is a folder with that repository. Its `shared_step` needs a ViT and a GPU; the loss it returns (the cross-entropy of the
mean logits, minus alpha_div times `log_det`) is formed here.
"""

import argparse
import ast
import json
import types
from pathlib import Path

import torch
import torch.nn.functional as F

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "authors"


def definitions(path, names, scope):
    """Compiles functions, classes and methods of a file from its own source."""
    found = {n.name: n for n in ast.walk(ast.parse(Path(path).read_text())) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for name in names:
        exec(compile(ast.Module([found[name]], []), str(path), "exec"), scope)
    return [scope[name] for name in names]


def ibdr(folder):
    scope = {"torch": torch, "F": F}
    euclid, log_det, dro = definitions(folder / "src" / "utils.py", ["euclid_distance", "log_det", "DRO"], scope)
    (training_step,) = definitions(folder / "src" / "model.py", ["training_step"], scope)
    torch.manual_seed(3)
    particles, classes, width, images = 4, 5, 4, 7
    start = torch.randn(particles, classes, width)
    x, labels = torch.randn(images, width), torch.randint(classes, (images,))
    heads = torch.nn.ParameterList([torch.nn.Parameter(one.clone()) for one in start])
    settings = {"lr": 0.5, "bound": 0.03, "clip": 0.2, "alpha_div": 0.02, "lambda": 3.0}
    optimizer = dro(heads.parameters(), torch.optim.SGD, distance="euclid", lr=settings["lr"], momentum=0.9)
    logged = {}

    def shared_step(batch, mode, logging=True):
        logits = [x @ head.T for head in heads]
        mean = sum(logits) / particles
        y = F.one_hot(labels, classes)
        divergence = -log_det(y, [one.softmax(-1) for one in logits], particles)
        return F.cross_entropy(mean, labels) + settings["alpha_div"] * divergence, mean

    model = types.SimpleNamespace(
        trainer=types.SimpleNamespace(optimizers=[optimizer]), optimizer="dro", distance="euclid", net=heads, clip=settings["clip"],
        bound=settings["bound"], lamda=torch.tensor(settings["lambda"]), shared_step=shared_step,
        manual_backward=lambda loss: loss.backward(), optimizers=lambda: optimizer,
        lr_schedulers=lambda: types.SimpleNamespace(step=lambda: None),
        log=lambda name, value, **_: logged.update({name: value}),
    )
    training_step(model, (x, labels), 0)
    return settings | {
        "x": x.tolist(), "labels": labels.tolist(), "start": start.tolist(),
        "after": torch.stack([head.detach() for head in heads]).tolist(),
        "lambda_after": logged["LAMDA"], "raw_distance": logged["perturb_distance"],
    }


def vbll(parameterization):
    """The loss with its gradients at the start, and three steps of Adam on it."""
    from vbll.layers.classification import DiscClassification, gaussian_kl

    torch.manual_seed(4)
    classes, width, images = 4, 6, 9
    layer = DiscClassification(width, classes, regularization_weight=1 / 30, parameterization=parameterization)
    parts = {"mean": layer.W_mean, "log_std": layer.W_logdiag, "log_noise": layer.noise_logdiag}
    if parameterization == "dense":
        parts["factor"] = layer.W_offdiag
        layer.W_offdiag.data.normal_(std=0.3)
    x = torch.randn(images, width, requires_grad=True)
    labels = torch.randint(classes, (images,))
    start = {name: part.tolist() for name, part in parts.items()}
    loss = layer(x).train_loss_fn(labels)
    loss.backward()
    logits = layer.logit_predictive(x)
    found = start | {
        "regularization_weight": layer.regularization_weight, "x": x.tolist(), "labels": labels.tolist(),
        "loss": loss.item(), "bound": -layer.jensen_bound(x, labels).mean().item(),
        "kl": gaussian_kl(layer.W(), layer.prior_scale).item(), "logits": logits.mean.tolist(), "variances": logits.var.tolist(),
        "by_x": x.grad.tolist(), **{f"by_{name}": part.grad.tolist() for name, part in parts.items()},
    }
    optimizer = torch.optim.Adam(parts.values(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        layer(x).train_loss_fn(labels).backward()
        optimizer.step()
    return found | {"lr": 0.05, "after": {name: part.tolist() for name, part in parts.items()}}


def vbll_of_shared_rank():
    """The bound and the divergence of weights whose covariance has a factor that the classes share, each with its gradients."""
    from vbll.layers.classification import DiscClassification, gaussian_kl
    from vbll.utils.distributions import LowRankNormal

    torch.manual_seed(5)
    classes, width, rank, images = 4, 6, 2, 9
    layer = DiscClassification(width, classes, regularization_weight=1.0, parameterization="lowrank", cov_rank=rank)
    layer.W_offdiag.data.normal_(std=0.3)
    parts = {"mean": layer.W_mean, "log_variance": layer.W_logdiag, "log_noise": layer.noise_logdiag, "factor": layer.W_offdiag}
    x = torch.randn(images, width)
    labels = torch.randint(classes, (images,))
    # A logit has the weights of one class, whose part of the shared factor is the factor of that class.
    bound = -layer.jensen_bound(x, labels).mean()
    flat = [layer.W_mean.reshape(1, -1), layer.W_offdiag.reshape(1, -1, rank), layer.W_logdiag.exp().reshape(1, -1)]
    kl = gaussian_kl(LowRankNormal(*flat), layer.prior_scale)
    found = {name: part.tolist() for name, part in parts.items()} | {"x": x.tolist(), "labels": labels.tolist(), "bound": bound.item(), "kl": kl.item()}
    for what, root in [("bound", bound), ("kl", kl)]:
        gradients = torch.autograd.grad(root, list(parts.values()), allow_unused=True)
        found |= {f"{what}_by_{name}": gradient.tolist() for name, gradient in zip(parts, gradients) if gradient is not None}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dro", type=Path, nargs="?", help="folder of ngocquanofficial/DRO; without it VBLL alone")
    torch.set_default_dtype(torch.float64)
    folder = parser.parse_args().dro
    goldens = [("ibdr", ibdr(folder))] if folder else []
    forms = {form: vbll(form) for form in ("diagonal", "dense")} | {"shared": vbll_of_shared_rank()}
    for name, golden in [*goldens, ("vbll", forms)]:
        (OUT / f"{name}.json").write_text(json.dumps(golden) + "\n")
        print(OUT / f"{name}.json")


if __name__ == "__main__":
    main()
