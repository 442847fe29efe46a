#!/usr/bin/env python3
"""Make a random-weight CLIP of a published shape, traced to TorchScript under OpenAI's names: the image tower, or both.

For sizes, speeds and memory without the real weights; its features mean nothing.
Needs: torch.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from clip_modules import Clip, ImageShape, ImageTower, TextShape, TowerShape, halve, randomise, write_archive


@dataclass(frozen=True)
class Architecture:
    patch: int
    tower: TowerShape
    words: TowerShape


TEXT = TextShape(vocabulary=49408, context=77)
WORDS = TowerShape(width=512, blocks=12, heads=8, mlp=2048, output=512)
LARGE_WORDS = TowerShape(width=768, blocks=12, heads=12, mlp=3072, output=768)
ARCHITECTURES = {
    "vit-b-32": Architecture(32, TowerShape(width=768, blocks=12, heads=12, mlp=3072, output=512), WORDS),
    "vit-b-16": Architecture(16, TowerShape(width=768, blocks=12, heads=12, mlp=3072, output=512), WORDS),
    "vit-l-14": Architecture(14, TowerShape(width=1024, blocks=24, heads=16, mlp=4096, output=768), LARGE_WORDS),
}


def image_shape(size, patch):
    if size < patch or size % patch != 0:
        raise SystemExit(f"--image-size {size}: must be a positive multiple of the patch size {patch}")
    return ImageShape(size, patch)


def trace(model, image):
    images = torch.zeros(2, 3, image.image_size, image.image_size)
    if not isinstance(model, Clip):
        return torch.jit.trace(model, images, check_trace=False)
    tokens = torch.arange(2 * TEXT.context).reshape(2, -1)
    inputs = {"forward": (images, tokens), "encode_image": images, "encode_text": tokens}
    return torch.jit.trace_module(model, inputs, check_trace=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="vit-b-32", help="published shape (default: vit-b-32)")
    parser.add_argument("--image-size", type=int, default=224, help="pixels on a side (default: 224)")
    parser.add_argument("--text", action="store_true", help="with the text tower, as OpenAI publishes the model")
    parser.add_argument("--half", action="store_true", help="matrices in f16, as OpenAI publishes them")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    args = parser.parse_args()

    architecture = ARCHITECTURES[args.arch]
    image = image_shape(args.image_size, architecture.patch)
    if args.text:
        model = Clip(image, architecture.tower, TEXT, architecture.words)
    else:
        model = ImageTower(image, architecture.tower)
    randomise(model, args.seed).eval()
    if args.half:
        halve(model)
    with torch.no_grad():
        size = write_archive(trace(model, image), args.out)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{args.out}  {size} bytes, {args.arch}, {parameters} parameters, {image.image_size} pixels a side")


if __name__ == "__main__":
    main()
