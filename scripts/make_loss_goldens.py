"""Prints the golden numbers of the test in src/tasks/classes.rs: torch's cross-entropy with class weights and label smoothing, and its
gradient at the first sample. Made with torch 2.11.0.

    python scripts/make_loss_goldens.py
"""

import torch

print("torch", torch.__version__)
for weighted, smoothing in [(True, 0.0), (False, 0.1), (True, 0.1)]:
    logits = torch.tensor([i * i * 5 % 17 / 4 - 2 for i in range(12)], dtype=torch.float64).view(4, 3).requires_grad_()
    weight = torch.tensor([0.5, 2.0, 1.25], dtype=torch.float64) if weighted else None
    loss = torch.nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)(logits, torch.tensor([1, 0, 2, 1]))
    loss.backward()
    print(f"({str(weighted).lower()}, {smoothing}, {loss.item()}, {logits.grad[0].tolist()}),")
