"""Writes tests/fixtures/authors/dora.json: a linear layer with DoRA, with a start by PiSSA, with both, and with dropout in front of the update
by given masks, as PEFT computes and trains them. Made with peft 0.21.2, torch 2.11.0.

    python scripts/make_dora_goldens.py
"""

import json
from pathlib import Path

import peft
import torch

INPUTS, OUTPUTS, RANK, ALPHA, RATE, STEPS = 7, 5, 2, 3, 0.02, 3


def wave(shape, phase):
    """Values that any language computes."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).view(shape)


def layer(**settings):
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, OUTPUTS))
    with torch.no_grad():
        model[0].weight.copy_(wave((OUTPUTS, INPUTS), 0.3))
        model[0].bias.copy_(wave((OUTPUTS,), 1.3))
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["0"], **settings)
    return peft.get_peft_model(model, config)


def trained(model):
    own = model.base_model.model[0]
    parts = {"a": own.lora_A["default"].weight, "b": own.lora_B["default"].weight}
    if own.use_dora["default"]:
        parts["m"] = own.lora_magnitude_vector["default"].weight
    return own, parts


def told(model, steps=STEPS):
    """Outputs and gradients at the start, and outputs after some steps of gradient descent."""
    own, parts = trained(model)
    x, target = wave((4, INPUTS), 0.9), wave((4, OUTPUTS), 2.1)
    x, target = x.to(own.weight.dtype), target.to(own.weight.dtype)
    optimizer = torch.optim.SGD(list(parts.values()), lr=RATE)
    out = {"product": (own.scaling["default"] * parts["b"] @ parts["a"]).tolist(), "start": model(x).tolist()}
    for step in range(steps):
        optimizer.zero_grad()
        (model(x) - target).square().sum().backward()
        if step == 0:
            out["gradients"] = {name: value.grad.tolist() for name, value in parts.items()}
        optimizer.step()
    out["end"] = model(x).tolist()
    if "m" in parts:
        out["m"] = parts["m"].tolist()
    return out


class Masked(torch.nn.Module):
    """Dropout with given masks: one for each forward pass, the same for all rows."""

    def __init__(self, masks, rate):
        super().__init__()
        self.masks, self.rate, self.at = masks, rate, 0

    def forward(self, x):
        mask = self.masks[self.at % len(self.masks)]
        self.at += 1
        return x * mask / (1 - self.rate)


def dropout():
    model = layer(lora_dropout=0.25).double()
    own, parts = trained(model)
    with torch.no_grad():
        own.base_layer.weight.copy_(wave((OUTPUTS, INPUTS), 0.3))
        own.base_layer.bias.copy_(wave((OUTPUTS,), 1.3))
        parts["a"].copy_(wave((RANK, INPUTS), 0.1))
        parts["b"].copy_(wave((OUTPUTS, RANK), 0.5) * 0.3)
    masks = torch.tensor([[1, 0, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 1, 0, 1]]).double()
    own.lora_dropout["default"] = Masked(masks, 0.25)
    x, target = wave((4, INPUTS), 0.9), wave((4, OUTPUTS), 2.1)
    optimizer = torch.optim.SGD(list(parts.values()), lr=RATE)
    outputs = []
    for _ in range(len(masks)):
        optimizer.zero_grad()
        y = model(x)
        outputs.append(y.tolist())
        (y - target).square().sum().backward()
        optimizer.step()
    return {"masks": masks.tolist(), "rate": 0.25, "outputs": outputs, **{name: value.tolist() for name, value in parts.items()}}


def main():
    dora = layer(use_dora=True).double()
    own, parts = trained(dora)
    with torch.no_grad():
        # Without the rounding to f32.
        own.base_layer.weight.copy_(wave((OUTPUTS, INPUTS), 0.3))
        own.base_layer.bias.copy_(wave((OUTPUTS,), 1.3))
        parts["a"].copy_(wave((RANK, INPUTS), 0.1))
        parts["b"].copy_(wave((OUTPUTS, RANK), 0.5) * 0.3)
        parts["m"].copy_(2 + 0.5 * wave((OUTPUTS,), 0.2))
    cases = {
        "dora": told(dora),
        "pissa": told(layer(init_lora_weights="pissa")),
        "both": told(layer(init_lora_weights="pissa", use_dora=True)),
        "dropout": dropout(),
    }
    path = Path(__file__).resolve().parent.parent / "tests/fixtures/authors/dora.json"
    path.write_text(json.dumps({"made_with": f"peft {peft.__version__}, torch {torch.__version__}", **cases}) + "\n")
    print(path, peft.__version__, torch.__version__)


if __name__ == "__main__":
    main()
