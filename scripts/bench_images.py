#!/usr/bin/env python3
"""Images a second of `bella images` against a torchvision DataLoader: decoded, resized, cropped, normalised, batched.

    python scripts/bench_images.py --bella target/release/bella FOLDER

FOLDER holds one folder per class (torchvision's ImageFolder). Both sides use two workers on two cores. The runs take turns
(torchvision, bella, bella from its packed cache), so that other load on the machine meets all alike; each run times one
pass over the images after a first one that is not counted. Needs torch, torchvision.
"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time

import torch
from torch.utils.data import ConcatDataset, DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--bella", default="bella")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--passes", type=int, default=5, help="times the folder is read in one epoch")
    args = parser.parse_args()
    os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[:2]))
    torch.set_num_threads(1)
    loader = torchvision_loader(args)
    with tempfile.TemporaryDirectory() as cache:
        rates = [
            (torchvision_rate(loader), bella_rate(args, []), bella_rate(args, ["--cache", cache]))
            for _ in range(args.repeats)
        ]
    print("| repeat | torchvision | bella | bella, packed cache | ratio | ratio, cache |")
    print("|---|---|---|---|---|---|")
    rows = [(t, b, c, b / t, c / t) for t, b, c in rates]
    for number, row in enumerate([*rows, [statistics.median(column) for column in zip(*rows)]], 1):
        t, b, c, ratio, cached = row
        name = number if number <= len(rows) else "median"
        print(f"| {name} | {t:.0f} | {b:.0f} | {c:.0f} | {ratio:.2f} | {cached:.1f} |")


def torchvision_loader(args):
    steps = [Resize(224, InterpolationMode.BICUBIC), CenterCrop(224), ToTensor(), Normalize(MEAN, STD)]
    images = ConcatDataset([ImageFolder(args.folder, Compose(steps))] * args.passes)
    return DataLoader(images, batch_size=128, num_workers=2, persistent_workers=True)


def torchvision_rate(loader):
    for _ in range(2):
        started, count = time.perf_counter(), 0
        for images, _ in loader:
            count += len(images)
    return count / (time.perf_counter() - started)


def bella_rate(args, options):
    command = [args.bella, "images", *[args.folder] * args.passes, "--epochs", "2", "--workers", "2", *options]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.findall(r"epoch 2: ([0-9.]+) images/s", lines)[0])


if __name__ == "__main__":
    main()
