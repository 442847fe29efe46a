"""Prints the golden numbers of learning rates by group: torch's AdamW and SGD with three groups (src/optimizers/entries), the factors of
timm's layer decay for a ViT of two blocks and those of PEFT's LoRA+ (tests/library/particles.rs). Made with torch 2.11.0, timm 1.0.31, peft 0.21.2.

    python scripts/make_rate_goldens.py
"""

import peft
import timm
import torch
from peft.optimizers import create_loraplus_optimizer
from timm.optim import param_groups_layer_decay

print("torch", torch.__version__, "timm", timm.__version__, "peft", peft.__version__)
start, target, scale = [1.0, -2.0, 0.5], [0.3, 0.1, -0.2], [1.0, 3.0, 0.5]
optimizers = {
    "adamw": lambda groups: torch.optim.AdamW(groups, weight_decay=0.1, betas=(0.9, 0.999), eps=1e-8),
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9, weight_decay=0.1),
}
for name, make in optimizers.items():
    parameters = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in start]
    optimizer = make([{"params": [p], "lr": 0.05 * factor} for p, factor in zip(parameters, [1.0, 4.0, 0.5])])
    for _ in range(3):
        optimizer.zero_grad()
        sum((p - t) ** 2 * s for p, t, s in zip(parameters, target, scale)).backward()
        optimizer.step()
    print(name, [p.item() for p in parameters])

vit = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=5)
names = {id(parameter): name for name, parameter in vit.named_parameters()}
for group in param_groups_layer_decay(vit, layer_decay=0.7):
    print(group["lr_scale"], [names[id(parameter)] for parameter in group["params"]])

adapted = peft.get_peft_model(vit, peft.LoraConfig(r=2, target_modules=["fc1"]))
names = {id(parameter): name for name, parameter in adapted.named_parameters()}
optimizer = create_loraplus_optimizer(adapted, torch.optim.AdamW, lr=1.0, loraplus_lr_ratio=16.0)
for group in optimizer.param_groups:
    print(group["lr"], [names[id(parameter)] for parameter in group["params"]])
