#!/usr/bin/env python3
"""Writes tests/fixtures/module: a residual network of a few hundred parameters as a TorchScript module, and what PyTorch
computes with two sets of its parameters: logits and the gradients of the mean cross-entropy by every parameter
(reference.safetensors). Also modules that are refused: one traced in training mode, one in half precision, one that
knows its batch size, one whose output is NaN, and three with parameters of which another tensor is a view.

    pip install torch safetensors
    python scripts/make_module_fixture.py
"""

import copy
from pathlib import Path
from typing import List

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from clip_modules import write_archive

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "module"
SIZE, CLASSES, BATCH = 8, 10, 4


class Residual(nn.Module):
    """A stem, a residual block with a grouped convolution and a 1 x 1 shortcut, pooling, a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(6)
        self.conv = nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2)
        self.norm2 = nn.BatchNorm2d(8)
        self.shortcut = nn.Conv2d(6, 8, 1, stride=2, bias=False)
        self.hidden = nn.Linear(8, 7)
        self.linear = nn.Linear(7, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm1(self.stem(x)))
        x = F.relu(self.norm2(self.conv(x)) + self.shortcut(x))
        return self.linear(torch.tanh(self.hidden(x.mean((2, 3)))))


def randomised(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in list(model.parameters()) + [b for b in model.buffers() if b.is_floating_point()]:
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.4)
        for name, tensor in model.state_dict().items():
            if name.endswith("running_var"):
                tensor.abs_().add_(0.5)
            if name.startswith("norm") and name.endswith("weight"):
                tensor.add_(1.0)
    return model.eval()


class KnowsItsBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * SIZE * SIZE, CLASSES)

    def forward(self, x):
        return self.linear(x.reshape(int(x.shape[0]), 3 * SIZE * SIZE))


class Views(nn.Module):
    """A classifier behind a matrix and, of the same memory, its transpose (`decode`) or a row of it (`row`)."""

    def __init__(self, transposed):
        super().__init__()
        self.encode = nn.Linear(3 * SIZE * SIZE, 6)
        self.square = nn.Linear(6, 6, bias=False)
        self.transposed = transposed
        if transposed:
            self.decode = nn.Parameter(self.square.weight.data.t())
        else:
            self.decode = nn.Parameter(torch.ones(6, 6))
            self.register_buffer("row", self.square.weight.data[2])
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = self.square(torch.tanh(self.encode(x.flatten(1)))) @ self.decode
        if not self.transposed:
            x = x + self.row
        return self.head(x)


class ViewInAList(nn.Module):
    """A classifier behind a matrix and, in a list, a row of the same memory."""

    rows: List[torch.Tensor]

    def __init__(self):
        super().__init__()
        self.square = nn.Linear(3 * SIZE * SIZE, 6, bias=False)
        self.head = nn.Linear(6, CLASSES)
        self.rows = [self.square.weight.data[2, :6]]

    def forward(self, x):
        return self.head(self.square(x.flatten(1)) + self.rows[0])


class Logarithm(nn.Module):
    """A classifier of the logarithm of pixels, which is NaN for those below 0."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * SIZE * SIZE, CLASSES)

    def forward(self, x):
        return self.linear(x.flatten(1).log())


def main():
    OUT.mkdir(exist_ok=True)
    model = randomised(Residual(), 1)
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))
    write_archive(torch.jit.script(model), OUT / "residual.pt")
    write_archive(torch.jit.script(copy.deepcopy(model).half()), OUT / "half.pt")

    labels = torch.tensor([1, 0, 7, 3])
    reference = {"pixels": images, "labels": labels}
    # the buffers stay those of the first network
    buffers = {name: tensor.clone() for name, tensor in model.named_buffers()}
    for particle in range(2):
        own = randomised(Residual(), 1 + particle)
        for name, tensor in own.named_buffers():
            tensor.copy_(buffers[name])
        logits = own(images)
        F.cross_entropy(logits, labels).backward()
        reference[f"{particle}.logits"] = logits.detach()
        for name, tensor in own.named_parameters():
            reference[f"{particle}.{name}"] = tensor.detach()
            reference[f"{particle}.{name}.gradient"] = tensor.grad
    save_file(reference, OUT / "reference.safetensors")

    training = randomised(Residual(), 1).train()
    write_archive(torch.jit.trace(training, images, check_trace=False), OUT / "training.pt")
    torch.manual_seed(5)
    for name, transposed in [("view_of_a_parameter", True), ("view_in_a_buffer", False)]:
        write_archive(torch.jit.trace(Views(transposed).eval(), images), OUT / f"{name}.pt")
    write_archive(torch.jit.script(ViewInAList().eval()), OUT / "view_in_a_list.pt")
    write_archive(torch.jit.trace(Logarithm().eval(), images.abs() + 1), OUT / "logarithm.pt")
    write_archive(torch.jit.trace(KnowsItsBatch(), images[:2], check_trace=False), OUT / "knows_its_batch.pt")


if __name__ == "__main__":
    main()
