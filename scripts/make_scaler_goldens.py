"""Prints the golden numbers of the test in src/train/scaling.rs: the factors of torch's GradScaler, with its defaults, when the gradients of
some steps are infinite. Made with torch 2.11.0.

    python scripts/make_scaler_goldens.py
"""

import torch

print("torch", torch.__version__)
skipped = [1, 2, 700, 2701, 2702, 5000]
parameter = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([parameter], lr=0.0)
scaler = torch.amp.GradScaler("cpu")
changes = []
for step in range(1, 9501):
    before = scaler.get_scale()
    scaler.scale(parameter.sum()).backward()
    parameter.grad.fill_(float("inf") if step in skipped else 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if scaler.get_scale() != before:
        changes.append((step, scaler.get_scale()))
print(changes)
