#!/usr/bin/env python3
"""Compares the bytes of `bella images` with torchvision on Pillow images, file by file.

    python scripts/compare_images.py --bella target/release/bella FOLDER [FOLDER ...]
    python scripts/compare_images.py --bella target/release/bella --noise 48 --resize stretch

With `--noise`, the images are black and white noise of 1 to 400 pixels a side, in which the order of the filters is seen best. Needs numpy, pillow, torchvision. Exit status 1 where the mean absolute difference exceeds 0.5 of 255 or one value
differs by more than 3.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, features
from torchvision import __version__ as torchvision_version
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

EXTENSIONS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--noise", type=int, default=0, metavar="N", help="compare N images of noise, too")
    parser.add_argument("--resize", choices=["shorter-side-crop", "stretch"], default="shorter-side-crop")
    parser.add_argument("--bella", default="bella")
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    if not args.folders and args.noise < 1:
        parser.error("name a folder, or give --noise N")
    jpeg = features.version_feature("libjpeg_turbo")
    print(f"Pillow {PIL.__version__} (libjpeg-turbo {jpeg}), torchvision {torchvision_version}, {args.size} px\n")
    print("| images | filter | n | mean difference | largest | equal bytes | worst image |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        folders = args.folders + ([noise(Path(place) / "noise", args.noise)] if args.noise else [])
        rows = [compare(folder, filter, args) for folder in folders for filter in ("bicubic", "bilinear")]
    sys.exit(any(mean > 0.5 or largest > 3 for mean, largest in rows))


def noise(folder, count):
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(count):
        width, height = random.integers(1, 400, 2)
        pixels = random.integers(0, 2, (height, width, 3)) * 255
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:03}-{width}x{height}.png")
    return folder


def compare(folder, filter, args):
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS)
    ours = dump(paths, filter, args)
    side = args.size if args.resize == "shorter-side-crop" else (args.size, args.size)
    see = Compose([Resize(side, InterpolationMode(filter)), CenterCrop(args.size)])
    total, equal, largest, worst = 0, 0, 0, ""
    for path, image in zip(paths, ours, strict=True):
        with Image.open(path) as file:
            theirs = np.asarray(see(file.convert("RGB"))).transpose(2, 0, 1)
        apart = np.abs(image.astype(int) - theirs)
        total, equal = total + apart.sum(), equal + (apart == 0).sum()
        if apart.max() > largest:
            largest, worst = int(apart.max()), path.name
    mean = total / ours.size
    print(f"| {folder.name} | {filter} | {len(paths)} | {mean:.5f} | {largest} | {equal / ours.size:.2%} | {worst} |")
    return mean, largest


def dump(paths, filter, args):
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "pixels.npy"
        command = [args.bella, "images", "-", "--size", str(args.size), "--resize", args.resize]
        command += ["--interpolation", filter, "-o", str(output)]
        subprocess.run(command, input="\n".join(map(str, paths)).encode(), check=True, stderr=subprocess.DEVNULL)
        return np.load(output)


if __name__ == "__main__":
    main()
