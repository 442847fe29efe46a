"""Prints the golden numbers of the test in src/train/particles.rs: a parameter averaged by timm's ModelEmaV3 over six steps. Made with timm
1.0.31 and torch 2.11.0.

    python scripts/make_ema_goldens.py
"""

import timm
import torch
from timm.utils.model_ema import ModelEmaV3

CASES = [
    dict(decay=0.9),
    dict(decay=0.9, update_after_step=2),
    dict(decay=0.9999, use_warmup=True),
    dict(decay=0.6, use_warmup=True, warmup_gamma=2.0, warmup_power=0.75, update_after_step=1),
]


def value(step):
    return torch.tensor([float(step * step * 7 % 11) / 4])


print("timm", timm.__version__, "torch", torch.__version__)
for case in CASES:
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data = value(0).view(1, 1)
    average = ModelEmaV3(model, **case)
    found = []
    for step in range(1, 7):
        model.weight.data = value(step).view(1, 1)
        average.update(model, step=step)  # as timm's train.py does, with the number of updates so far
        found.append(average.module.weight.item())
    print(f'("{" ".join(f"{key}={str(value).lower()}" for key, value in case.items())}", {found}),')
