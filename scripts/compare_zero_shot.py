#!/usr/bin/env python3
"""Check a zero-shot head that bella builds against PyTorch on the same full CLIP archive.

Runs `bella head` on a config of cifar10's class names and templates, and builds the same head by the archive's own
`encode_text` with open_clip's tokenizer: mean of the normalised embeddings, normalised again, times exp(logit_scale).
Needs: torch, open_clip_torch, safetensors. Exit code 1 where a weight differs by more than the bound.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import open_clip
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def ours(args, folder):
    config = folder / "head.toml"
    config.write_text(
        f'name = "head"\nseed = 1\n[checkpoint]\npath = "{args.archive.resolve()}"\nnormalize = "clip"\n'
        f'[head.zero-shot]\ntemplates = "{args.templates}"\n[data.cifar10]\nroot = "."\n'
    )
    target = folder / "head.safetensors"
    command = [args.bella, "head", "--config", config, "--to", target, "--device", "cpu", "--threads", str(args.threads)]
    subprocess.run(command, check=True, env=os.environ | {"BELLA_CACHE": str(folder / "cache")})
    return load_file(target)["weight"]


def theirs(args):
    model = torch.jit.load(args.archive, map_location="cpu").eval()
    templates = tomllib.loads((ROOT / "assets/prompts.toml").read_text())[args.templates]["templates"]
    rows = []
    with torch.no_grad():
        for name in NAMES:
            tokens = open_clip.tokenize([template.replace("{}", name) for template in templates])
            embeddings = model.encode_text(tokens).float()
            mean = (embeddings / embeddings.norm(dim=-1, keepdim=True)).mean(dim=0)
            rows.append(mean / mean.norm())
    return torch.stack(rows) * model.logit_scale.float().exp()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="a full CLIP archive with CLIP's vocabulary")
    parser.add_argument("--templates", default="cifar10", help="a key of assets/prompts.toml (default: cifar10)")
    parser.add_argument("--bound", type=float, default=1e-4, help="largest difference of a weight (default: 1e-4)")
    parser.add_argument("--bella", default=str(ROOT / "target/release/bella"), help="the binary")
    parser.add_argument("--threads", type=int, default=1, help="threads of both (default: 1)")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        weight = ours(args, Path(folder))
        middle = time.perf_counter()
    expected = theirs(args)
    seconds = (middle - begin, time.perf_counter() - middle)
    difference = (weight - expected).abs().max().item()
    cosine = torch.nn.functional.cosine_similarity(weight, expected).min().item()
    print(f"{tuple(weight.shape)}: largest difference {difference:.1e} of {expected.abs().max():.1f}, cosine {cosine:.7f}")
    print(f"bella {seconds[0]:.1f} s, PyTorch {seconds[1]:.1f} s")
    if difference > args.bound:
        sys.exit(f"more than {args.bound:.0e}")


if __name__ == "__main__":
    main()
