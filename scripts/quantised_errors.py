#!/usr/bin/env python3
"""Prints how far weights in 8 and 4 bits, as bitsandbytes quantises them, are from those in f32: the relative error of each kind of layer
(the norm of the difference by that of the weight), least and largest over the blocks, for the tables of results/quantised.md.

    python scripts/quantised_errors.py ARCHIVE.pt FOLDER...    # TorchScript archives, and folders of transformers
"""

import re
import sys
from pathlib import Path

import bitsandbytes.functional as bnb
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from safetensors.torch import load_file


def weights(path):
    if path.suffix == ".pt":
        return {name: tensor for name, tensor in torch.jit.load(path, map_location="cpu").named_parameters()}
    return {name: tensor for file in sorted(path.glob("*.safetensors")) if "reference" not in file.name for name, tensor in load_file(file).items()}


def int8(weight):
    return bnb.int8_vectorwise_dequant(*bnb.int8_vectorwise_quant(weight)[:2])


def nf4(weight):
    codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    return _dequantize_4bit_compute(codes.reshape(-1), state.absmax, state.code, 64, state.shape, torch.float32)


def main():
    for path in map(Path, sys.argv[1:]):
        found = {}
        for name, tensor in weights(path).items():
            block = re.search(r"\.(?:blocks|resblocks|layers)\.(\d+)\.(.*?)\.?(?:weight|in_proj_weight)$", name)
            if block and tensor.dim() == 2 and "text" not in name and not name.startswith("transformer."):
                weight = tensor.detach().float()
                error = [((of(weight) - weight).norm() / weight.norm()).item() for of in (int8, nf4)]
                found.setdefault(block[2] or "in_proj", []).append(error)
        print(f"\n{path}\n| layer | blocks | int8 | nf4 |\n|---|---|---|---|")
        for layer, errors in found.items():
            spans = [f"{min(column):.4f} to {max(column):.4f}" for column in zip(*errors)]
            print(f"| {layer} | {len(errors)} | {spans[0]} | {spans[1]} |")


if __name__ == "__main__":
    main()
