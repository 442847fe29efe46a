#!/usr/bin/env python3
"""Thresholds and sets of LAC, APS and RAPS, written from the papers' equations: the numbers in src/metrics/conformal/tests.rs.

16 calibration and 4 test images of 5 classes, one member, logits 1.5 sin(1.7 i c + i + c) in f32. The label is the most probable
class, but the second one where i mod 3 = 2, and else the third one where i mod 5 = 4.
"fixed": u = 0. "random": u_i = frac(0.37 (i + 1)) here. RAPS: penalty 0.05 beyond rank 2.
"""

import math

import numpy as np

CLASSES, HELD_OUT, ALPHAS = 5, 16, (0.1, 0.25)
logits = np.float32([[1.5 * math.sin(1.7 * i * c + i + c) for c in range(CLASSES)] for i in range(HELD_OUT + 4)]).astype(np.float64)
p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
labels = [int(np.argsort(-p[i], kind="stable")[1 if i % 3 == 2 else 2 if i % 5 == 4 else 0]) for i in range(HELD_OUT + 4)]


def scores(name, p, u):
    """s(x, c) for every class c of one image."""
    order = np.argsort(-p, kind="stable")
    rank = np.empty(CLASSES, int)
    rank[order] = np.arange(1, CLASSES + 1)
    before = np.array([p[p > p[c]].sum() for c in range(CLASSES)])
    if name == "lac":
        return 1 - p
    return before + u * p + (0.05 * np.maximum(0, rank - 2) if name == "raps" else 0)


def threshold(values, alpha):
    k = math.ceil((len(values) + 1) * (1 - alpha) - 1e-9)
    return sorted(values)[k - 1]


for name in ("lac", "aps", "raps"):
    for draw in ("fixed", "random"):
        u = lambda i: 0.0 if draw == "fixed" else math.modf(0.37 * (i + 1))[0]
        own = [scores(name, p[i], u(i))[labels[i]] for i in range(HELD_OUT)]
        for alpha in ALPHAS:
            q = threshold(own, alpha)
            sets = []
            for i in range(HELD_OUT, HELD_OUT + 4):
                s = scores(name, p[i], u(i))
                order = np.argsort(-p[i], kind="stable")
                sets.append([int(c) for c in order if s[c] <= q])
            print(name, draw, alpha, repr(float(q)), sets)

# Class-wise thresholds of LAC at alpha = 0.5, which need one image of each class.
own = [scores("lac", p[i], 1.0)[labels[i]] for i in range(HELD_OUT)]
print("class-wise", [round(float(threshold([s for s, y in zip(own, labels) if y == c], 0.5)), 12) for c in range(CLASSES)],
      np.bincount(labels[:HELD_OUT]).tolist())
