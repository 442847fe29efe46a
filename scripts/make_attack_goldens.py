#!/usr/bin/env python3
"""Golden numbers of attacks, made by the authors' package AutoAttack.

    PYTHONPATH=AUTO-ATTACK python scripts/make_attack_goldens.py > tests/fixtures/authors/autoattack.json

AUTO-ATTACK is a checkout of https://github.com/fra31/auto-attack (commit a39220048b3c9f2cca9a4d3a54604793c68eca7e, MIT).
Everything runs in f64: the package's calls of `.float()` are made to give doubles. A small network with two layers attacks few
images from given starts, so that the points can be compared; Square gets given random numbers. On more images, only the share that
resists is compared, since random starts differ.
"""
import json
import math

import torch

torch.set_default_dtype(torch.float64)
torch.Tensor.float = torch.Tensor.double

from autoattack import AutoAttack  # noqa: E402
from autoattack.autopgd_base import APGDAttack, APGDAttack_targeted  # noqa: E402
from autoattack.fab_projections import projection_linf  # noqa: E402
from autoattack.fab_pt import FABAttack_PT  # noqa: E402
from autoattack.square import SquareAttack  # noqa: E402

SHAPE, HIDDEN, CLASSES, EPSILON, STEPS = (3, 6, 6), 10, 5, 0.05, 40
torch.manual_seed(5)


def rounded(tensor, digits=4):
    return (tensor * 10**digits).round() / 10**digits


FIRST = rounded(torch.randn(HIDDEN, math.prod(SHAPE)) * 0.25)
SECOND = rounded(torch.randn(CLASSES, HIDDEN) * 1.5)


def model(x):
    return torch.tanh((x - 0.5).flatten(1) @ FIRST.T) @ SECOND.T


def lists(tensor):
    return tensor.detach().tolist()


def labelled(count, easiest):
    """Images with the labels that the network gives them, those with large margins where `easiest`."""
    images = rounded(torch.rand(400, *SHAPE), 3)
    top = model(images).topk(2, 1).values
    order = (top[:, 0] - top[:, 1]).argsort(descending=True) if easiest else torch.arange(400)
    images = images[order[:count]].clone()
    return images, model(images).argmax(1)


def walks(x, y, start):
    found = {}
    arguments = {"n_iter": STEPS, "eps": EPSILON, "device": "cpu"}
    for loss in ("ce", "dlr"):
        attack = APGDAttack(model, loss=loss, **arguments)
        attack.init_hyperparam(x)
        best, _, _, wrong = attack.attack_single_run(x, y, x_init=start)
        found[loss] = {"best": lists(best), "wrong": lists(wrong)}
    attack = APGDAttack_targeted(model, **arguments)
    attack.init_hyperparam(x)
    attack.y_target = model(x).sort(dim=1)[1][:, -3]
    best, _, _, wrong = attack.attack_single_run(x, y, x_init=start)
    found["targeted"] = {"best": lists(best), "wrong": lists(wrong)}
    return found


def boundaries(x, y):
    attack = FABAttack_PT(model, n_iter=STEPS, eps=10.0, device="cpu")
    near = attack.attack_single_run(x, y)
    attack.target_class = 3
    return {"nearest": lists(near), "targeted": lists(attack.attack_single_run(x, y, is_targeted=True))}


def squares(x, y, queries=60):
    """Square with given numbers: signs alternate, places go round."""
    attack = SquareAttack(model, n_queries=queries, eps=EPSILON, resc_schedule=False, device="cpu")
    attack.init_hyperparam(x)
    counts = {"signs": 0, "places": 0}

    def random_choice(shape):
        count = math.prod(shape)
        if len(shape) == 4:  # the stripes of all images
            of_image = torch.tensor([1.0 if (i * i // 3) % 2 == 0 else -1.0 for i in range(count // shape[0])])
            return of_image.view(1, *shape[1:]).expand(*shape)
        counts["signs"] += 1
        k = counts["signs"] - 1
        return torch.tensor([1.0 if (k * (c + 2) // 3) % 2 == 0 else -1.0 for c in range(3)]).view(*shape)

    def random_int(low=0, high=1, shape=(1,)):
        k = counts["places"]
        counts["places"] += 1
        return torch.tensor([low + (k * 7 // 2) % max(high - low, 1)])

    attack.random_choice, attack.random_int = random_choice, random_int
    return {"queries": queries, "pixels": lists(attack.attack_single_run(x, y)[1])}


def robust(x, y, epsilon, attacks):
    attack = AutoAttack(model, eps=epsilon, seed=0, verbose=False, version="custom", attacks_to_run=attacks, device="cpu")
    attack.apgd.n_restarts = attack.fab.n_restarts = 1
    attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = CLASSES - 1
    attack.square.n_queries = 300
    moved = attack.run_standard_evaluation(x, y)
    return (model(moved).argmax(1) == y).double().mean().item()


def projections():
    points, normal = torch.rand(6, 9), torch.randn(6, 9)
    normal[1, ::2] = 0.0
    offset = torch.tensor([0.1, -0.2, 30.0, -30.0, 1.0, 0.0])
    return {"points": lists(points), "normal": lists(normal), "offset": lists(offset),
            "step": lists(projection_linf(points, normal, offset))}


def main():
    x, y = labelled(6, easiest=True)
    start = (x + EPSILON * (2 * rounded(torch.rand_like(x), 3) - 1)).clamp(0, 1)
    many, labels = labelled(60, easiest=False)
    selections = {name: [robust(many, labels, epsilon, attacks) for epsilon in (0.02, 0.04, 0.06)] for name, attacks in {
        "apgd-ce": ["apgd-ce"], "apgd-dlr": ["apgd-dlr"], "apgd-t": ["apgd-t"], "fab": ["fab"], "fab-t": ["fab-t"],
        "square": ["square"], "autoattack": ["apgd-ce", "apgd-t", "fab-t", "square"]}.items()}
    print(json.dumps({
        "first": lists(FIRST), "second": lists(SECOND), "epsilon": EPSILON, "steps": STEPS,
        "images": lists(x), "labels": lists(y), "start": lists(start), "walks": walks(x, y, start),
        "boundaries": boundaries(x, y), "squares": squares(x, y), "projections": projections(),
        "many": {"images": lists(many), "labels": lists(labels), "epsilons": [0.02, 0.04, 0.06], "robust": selections},
    }))


if __name__ == "__main__":
    main()
