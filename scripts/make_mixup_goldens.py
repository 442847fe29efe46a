"""Prints the golden numbers of the tests in src/data/mix/tests.rs and src/tasks/classes.rs: mixed images, the shares of their labels, and the
loss of mixed labels, by timm's Mixup with given draws. Made with timm 1.0.31, torch 2.11.0 and numpy 2.4.6.

    python scripts/make_mixup_goldens.py
"""

import numpy as np
import timm
import torch
from timm.data.mixup import Mixup
from timm.loss import SoftTargetCrossEntropy

SIDE = 12
UNIFORM = [0.31, 0.87, 0.05, 0.62, 0.44, 0.93, 0.18, 0.71]
BETA = [0.83, 0.27, 0.55, 0.91, 0.12, 0.68]
PLACE = [0.4, 0.9, 0.15, 0.65, 0.05]


class Given:
    """Numbers handed out in turn in place of numpy's draws, again from the start when they are used up."""

    def __init__(self):
        self.at = {"uniform": 0, "beta": 0, "place": 0}

    def next(self, which, values):
        value = values[self.at[which] % len(values)]
        self.at[which] += 1
        return value

    def some(self, which, values, size):
        return self.next(which, values) if size is None else np.array([self.next(which, values) for _ in range(size)])

    def rand(self, size=None):
        return self.some("uniform", UNIFORM, size)

    def beta(self, _, __, size=None):
        return self.some("beta", BETA, size)

    def randint(self, low, high, size=None):
        assert size is None
        return low + int(self.next("place", PLACE) * (high - low))


def images(count):
    places = np.arange(count * 3 * SIDE * SIDE, dtype=np.float64)
    return torch.from_numpy((places * 37 % 101) / 101 - 0.3).float().view(count, 3, SIDE, SIDE)


def sums(x):
    """Two weighted sums of each image, which every pixel changes."""
    places = torch.arange(x[0].numel(), dtype=torch.float64)
    weights = [1 + places % 7, torch.cos(places)]
    return [[float((image.double().flatten() * weight).sum()) for weight in weights] for image in x]


CASES = [
    dict(mixup_alpha=0.8),
    dict(mixup_alpha=0.0, cutmix_alpha=1.0),
    dict(mixup_alpha=0.8, cutmix_alpha=1.0, switch_prob=0.9),
    dict(mixup_alpha=0.8, prob=0.2),
    dict(mixup_alpha=0.0, cutmix_minmax=[0.2, 0.8]),
    dict(mixup_alpha=0.8, cutmix_alpha=1.0, mode="pair", switch_prob=0.5, prob=0.9),
    dict(mixup_alpha=0.8, cutmix_alpha=1.0, mode="elem", switch_prob=0.6, prob=0.6),
    dict(mixup_alpha=0.0, cutmix_minmax=[0.3, 0.9], mode="elem"),
    dict(mixup_alpha=0.0, cutmix_alpha=1.0, mode="elem"),
]

print("timm", timm.__version__, "torch", torch.__version__, "numpy", np.__version__)
for case in CASES:
    given = Given()
    np.random.rand, np.random.beta, np.random.randint = given.rand, given.beta, given.randint
    mixup = Mixup(**case, label_smoothing=0.0, num_classes=4)
    x, target = mixup(images(4), torch.tensor([0, 1, 2, 3]))
    shares = [float(target[i, i]) for i in range(4)]
    print(case, shares, sums(x), sep="\n  ")

for smoothing in [0.0, 0.1]:
    given = Given()
    np.random.rand, np.random.beta, np.random.randint = given.rand, given.beta, given.randint
    mixup = Mixup(mixup_alpha=0.8, mode="elem", label_smoothing=smoothing, num_classes=3)
    _, target = mixup(images(4).double(), torch.tensor([1, 0, 2, 1]))
    logits = torch.tensor([i * i * 5 % 17 / 4 - 2 for i in range(12)], dtype=torch.float64).view(4, 3).requires_grad_()
    loss = SoftTargetCrossEntropy()(logits, target)
    loss.backward()
    print(f"({smoothing}, {loss.item()}, {logits.grad[0].tolist()}),")
