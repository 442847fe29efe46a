#!/usr/bin/env python3
"""Make a random-weight CLIP image tower of a published shape, traced to TorchScript under OpenAI's names.

For sizes, speeds and memory without the real weights; its features mean nothing.
Needs: torch.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from clip_modules import ImageShape, ImageTower, TowerShape, halve, randomise, write_archive


@dataclass(frozen=True)
class Architecture:
    patch: int
    tower: TowerShape


ARCHITECTURES = {
    "vit-b-32": Architecture(32, TowerShape(width=768, blocks=12, heads=12, mlp=3072, output=512)),
    "vit-b-16": Architecture(16, TowerShape(width=768, blocks=12, heads=12, mlp=3072, output=512)),
    "vit-l-14": Architecture(14, TowerShape(width=1024, blocks=24, heads=16, mlp=4096, output=768)),
}


def image_shape(size, patch):
    if size < patch or size % patch != 0:
        raise SystemExit(f"--image-size {size}: must be a positive multiple of the patch size {patch}")
    return ImageShape(size, patch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="vit-b-32", help="published shape (default: vit-b-32)")
    parser.add_argument("--image-size", type=int, default=224, help="pixels on a side (default: 224)")
    parser.add_argument("--half", action="store_true", help="matrices in f16, as OpenAI publishes them")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    args = parser.parse_args()

    architecture = ARCHITECTURES[args.arch]
    image = image_shape(args.image_size, architecture.patch)
    tower = randomise(ImageTower(image, architecture.tower), args.seed).eval()
    if args.half:
        halve(tower)
    example = torch.zeros(2, 3, image.image_size, image.image_size)
    size = write_archive(torch.jit.trace(tower, example, check_trace=False), args.out)
    parameters = sum(parameter.numel() for parameter in tower.parameters())
    print(f"{args.out}  {size} bytes, {args.arch}, {parameters} parameters, {image.image_size} pixels a side")


if __name__ == "__main__":
    main()
