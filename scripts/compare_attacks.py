#!/usr/bin/env python3
"""Bella's FGSM and PGD against torchattacks, on the same checkpoint, head and images.

    python scripts/compare_attacks.py target/release/bella CONFIG [--set data.cifar10.subset=256] [--epsilon 0.03]

CONFIG is an experiment with [head.zero-shot] or [head.checkpoint]; the checkpoint is attacked as it is. Bella writes the
clean pixels (epsilon 0) and the attacked ones; torchattacks attacks the same clean pixels through the TorchScript archive
itself. Printed: the share of pixels whose direction differs, and how large the gradient is there; in f64 none may differ.
Needs torch, torchattacks and safetensors. Exit code 1 where the two disagree.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import tomllib

import torch
import torchattacks
from safetensors.torch import load_file

STATISTICS = {
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class Classifier(torch.nn.Module):
    """Pixels in [0, 1] to logits: normalisation, archive, head."""

    def __init__(self, config, dtype):
        super().__init__()
        checkpoint = config["checkpoint"]
        self.archive = torch.jit.load(checkpoint["path"], map_location="cpu").eval().to(dtype)
        normalize = checkpoint["normalize"]
        mean, std = STATISTICS[normalize] if isinstance(normalize, str) else (normalize["mean"], normalize["std"])
        self.mean = torch.tensor(mean, dtype=dtype).view(1, 3, 1, 1)
        self.std = torch.tensor(std, dtype=dtype).view(1, 3, 1, 1)
        self.head = None
        if "zero-shot" in config["head"]:
            self.head = load_file(config["head"]["zero-shot"]["weights"])["weight"].to(dtype)

    def forward(self, x):
        x = x.to(self.mean.dtype)
        encode = self.archive.encode_image if hasattr(self.archive, "encode_image") else self.archive
        out = encode((x - self.mean) / self.std)
        out = out[0] if isinstance(out, tuple) else out
        if self.head is None:
            return out
        return torch.nn.functional.normalize(out, dim=-1) @ self.head.T


def bella_images(binary, config, sets, attack, epsilon, precision, folder):
    command = [binary, "eval", "--config", config, "--attack", attack, "--epsilon", f"0,{epsilon}", "--precision", precision,
               "--save-images", folder, "--out", folder, "--device", "cpu"]
    if attack == "pgd":
        command += ["--attack-from-image", "--attack-steps", "10", "--attack-step-size", str(epsilon / 4)]
    for one in sets:
        command += ["--set", one]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    clean, attacked = (
        load_file(next(path for path in pathlib.Path(folder).glob("*/*.safetensors") if named(path, attack, budget)))
        for budget in (0, epsilon))
    return clean["images"], clean["labels"], attacked["images"]


def named(path, attack, epsilon):
    rest = path.stem.partition(f"@{attack}-{epsilon}")[2]
    return f"@{attack}-{epsilon}" in path.stem and rest[:1] in ("", "-")


def compare(arguments, config, attack, precision):
    dtype = {"f32": torch.float32, "f64": torch.float64}[precision]
    epsilon = arguments.epsilon
    with tempfile.TemporaryDirectory() as folder:
        clean, labels, ours = bella_images(
            arguments.bella, arguments.config, arguments.set, attack, epsilon, precision, folder)
    model = Classifier(config, dtype)
    make = {"fgsm": lambda: torchattacks.FGSM(model, eps=epsilon),
            "pgd": lambda: torchattacks.PGD(model, eps=epsilon, alpha=epsilon / 4, steps=10, random_start=False)}
    theirs, gradients = [], []
    for x, y in zip(clean.to(dtype).split(64), labels.split(64)):
        theirs.append(make[attack]()(x, y).detach())
        x = x.clone().requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum")
        gradients.append(torch.autograd.grad(loss, x)[0])
    theirs, gradients = torch.cat(theirs), torch.cat(gradients).abs()
    differs = (ours.to(dtype) - theirs).abs() > 1e-6
    share = differs.double().mean().item()
    largest = (gradients[differs].max() / gradients.median()).item() if differs.any() else 0.0
    predicted = [model(x.to(dtype)).argmax(1) for x in (ours, theirs)]
    same = (predicted[0] == predicted[1]).double().mean().item()
    print(f"{attack} {precision}: {len(clean)} images, {clean[0].numel()} values each; values that differ {share:.2e}; "
          f"largest |gradient| there / median {largest:.1e}; equal predictions {same:.4f}")
    if attack == "fgsm":
        return share == 0.0 if precision == "f64" else share < 1e-3 and largest < 1e-2
    return same > 0.99


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bella")
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--epsilon", type=float, default=0.03)
    arguments = parser.parse_args()
    config = tomllib.loads(pathlib.Path(arguments.config).read_text())
    cases = [("fgsm", "f64"), ("fgsm", "f32"), ("pgd", "f64"), ("pgd", "f32")]
    failed = [case for case in cases if not compare(arguments, config, *case)]
    sys.exit(f"disagreement: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
