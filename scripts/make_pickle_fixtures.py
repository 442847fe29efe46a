#!/usr/bin/env python3
"""Writes tests/fixtures/pickles: files of torch.save as they are found in the wild, and those that must be refused.

    pip install torch safetensors
    python scripts/make_pickle_fixtures.py
"""

import collections
import os
import zipfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
OUT = FIXTURES / "pickles"


class Calls:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("touch pickle_was_executed",)


def views():
    """Tensors that share a storage, stand in it with strides, or have half precision."""
    base = torch.arange(24.0).view(4, 6)
    return collections.OrderedDict(
        whole=base, transposed=base.t(), sliced=base[1:3, ::2], row=base[2], scalar=torch.tensor(2.5),
        parameter=torch.nn.Parameter(base[:, 1]), half=(base / 7).half(), bfloat=(base / 7).bfloat16(), empty=base[:0])


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    torch.save(views(), OUT / "views.pth")
    save_file({name: tensor.detach().float().contiguous().clone() for name, tensor in views().items()}, OUT / "views.safetensors")
    # A network with the attributes of a module's state dict, within a training script's dictionary, from parallel training.
    network = collections.OrderedDict(("module." + k, v) for k, v in load_file(FIXTURES / "folders/timm-vit/model.safetensors").items())
    network._metadata = collections.OrderedDict({"": dict(version=1)})
    torch.save({"epoch": 3, "state_dict": network}, OUT / "network.pth")
    one = torch.ones(2)
    torch.save({"weight": one}, OUT / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save({f"module._orig_mod.{name}": one for name in ["weight", "bias"]}, OUT / "compiled.pth")
    torch.save({"weight": one, "evil": Calls()}, OUT / "calls.pth")
    torch.save({"weight": one, "epoch": 3}, OUT / "not_flat.pth")
    torch.save([one], OUT / "list.pth")
    torch.save({"weight": torch.quantize_per_tensor(one, 0.1, 0, torch.qint8)}, OUT / "quantised.pth")
    torch.save({"weight": one.to(torch.float8_e4m3fn)}, OUT / "float8.pth")
    torch.save({"patch_embed.proj.weight": one.to(torch.int8)}, OUT / "int8.pth")
    # Weights beside their mean over the steps of a training, as timm's script and torchvision's write them.
    torch.save({"epoch": 3, "state_dict": {"module.patch_embed.proj.weight": one},
                "state_dict_ema": {"module.patch_embed.proj.weight": 2 * one}, "model_ema": None}, OUT / "means_of_timm.pth")
    torch.save({"model": {"conv1.weight": one}, "model_ema": {"conv1.weight": 2 * one}}, OUT / "means.pth")
    # A view of one number that claims a million.
    torch.save({"weight": one[:1].expand(1 << 23)}, OUT / "expanded.pth")
    # Lists within lists, deeper than Python's own reader goes.
    deep = b"]" * 50_000 + b"a" * 49_999
    with zipfile.ZipFile(OUT / "deep.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("deep/data.pkl", b"\x80\x02}X\x06\x00\x00\x00weight" + deep + b"s.")
    for path in sorted(OUT.iterdir()):
        print(path.name, path.stat().st_size)
