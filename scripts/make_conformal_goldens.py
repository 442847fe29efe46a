#!/usr/bin/env python3
"""Prints the thresholds and sets of LAC, APS and RAPS by TorchCP: the golden numbers of src/metrics/conformal/mod.rs. Made with torchcp
1.2.1 and torch 2.11.0.

    pip install torch==2.11.0 torchcp==1.2.1
    python scripts/make_conformal_goldens.py

16 calibration and 4 test images of 5 classes, one member, logits 1.5 sin(1.7 i c + i + c) in f32. The label is the most probable
class, but the second one where i mod 3 = 2, and else the third one where i mod 5 = 4. RAPS: penalty 0.05 beyond rank 2.

TorchCP takes a share U of a class's own probability off the mass up to it, which is what u = 1 - U adds to the mass before it. Its draws
are given: U = 1 for "fixed", and u_i = frac(0.37 (i + 1)) for "random".
"""

import math

import torch
from torchcp.classification.predictor import ClassConditionalPredictor, SplitPredictor
from torchcp.classification.score import APS, LAC, RAPS

CLASSES, HELD_OUT, TESTS, ALPHAS = 5, 16, 4, (0.1, 0.25)
torch.set_default_dtype(torch.float64)
logits = torch.tensor(
    [[1.5 * math.sin(1.7 * i * c + i + c) for c in range(CLASSES)] for i in range(HELD_OUT + TESTS)], dtype=torch.float32
)
probabilities = logits.double().softmax(1)
ranked = probabilities.argsort(1, descending=True)
labels = torch.tensor([ranked[i, 1 if i % 3 == 2 else 2 if i % 5 == 4 else 0] for i in range(HELD_OUT + TESTS)])


def given(draw, first):
    """Stands for torch.rand: the draws of the images from the first one on, one a row."""

    def rand(*shape, **_):
        size = torch.Size(shape[0] if isinstance(shape[0], (tuple, torch.Size)) else shape)
        u = [0.0 if draw == "fixed" else math.modf(0.37 * (first + i + 1))[0] for i in range(size[0])]
        return (1 - torch.tensor(u)).view(-1, *[1] * (len(size) - 1)).expand(size)

    return rand


def calibrated(predictor, score, draw, alpha):
    made = predictor(score)
    torch.rand = given(draw, 0)
    made.calculate_threshold(probabilities[:HELD_OUT], labels[:HELD_OUT], alpha)
    return made


def sets(made, draw):
    torch.rand = given(draw, HELD_OUT)
    inside = made.predict_with_logits(probabilities[HELD_OUT:]).bool()
    return [[int(c) for c in ranked[HELD_OUT + i] if inside[i, c]] for i in range(TESTS)]


SCORES = {
    "lac": LAC(score_type="identity"),
    "aps": APS(score_type="identity"),
    "raps": RAPS(score_type="identity", penalty=0.05, kreg=2),
}
for name, score in SCORES.items():
    for draw in ("fixed",) if name == "lac" else ("fixed", "random"):
        for alpha in ALPHAS:
            made = calibrated(SplitPredictor, score, draw, alpha)
            print(name, draw, alpha, repr(float(made.q_hat)), sets(made, draw))

# A threshold for each class from its own images, of which there must be one at least.
for name, score in SCORES.items():
    made = calibrated(ClassConditionalPredictor, score, "fixed", 0.5)
    print("class-wise", name, [round(float(q), 12) for q in made.q_hat], sets(made, "fixed"))
