#!/usr/bin/env python3
"""Make tests/fixtures: tiny random-weight TorchScript archives, one per naming scheme and export style.

Writes the archives that must load (with their true sizes in fixtures.json), those that must be refused, and
heads/head_tiny.safetensors. Weights come from fixed seeds and are scaled so that a wrong activation, LayerNorm eps or
head count changes the output clearly; this is checked before an archive is written. The weights are the same in
every run; the text of scripted code is not byte for byte.
Needs: torch, torchvision, timm, open_clip_torch, safetensors.
"""

import argparse
import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Callable

import torch
from safetensors.torch import save_file
from torch import nn

from clip_modules import ImageShape, ImageTower, TowerShape, halve, randomise, write_archive
from fixture_models import (
    MANY_TOKENS,
    PostNormBlock,
    conv_net,
    gated_timm_model,
    open_clip_model,
    openai_clip,
    openai_clip_words,
    timm_model,
    torchvision_model,
)

CLASSES = 10
MAX_ARCHIVE_BYTES = 100_000
MAX_VOCABULARY_BYTES = 400_000  # more for an archive with the whole vocabulary
MAX_TOTAL_BYTES = 1_500_000
# smallest relative change of the output that a wrong guess must cause
MIN_CHANGE = 3e-3

OPENAI_IMAGE = ImageShape(image_size=16, patch=4)
OPENAI_TOWER = TowerShape(width=24, blocks=2, heads=3, mlp=60, output=24)
OPEN_CLIP_IMAGE = ImageShape(image_size=24, patch=8)
OPEN_CLIP_TOWER = TowerShape(width=16, blocks=2, heads=2, mlp=64, output=20, activation="gelu")
TIMM_IMAGE = ImageShape(image_size=32, patch=8)
TIMM_TOWER = TowerShape(width=16, blocks=2, heads=2, mlp=48, output=CLASSES, eps=1e-6, activation="gelu")
TIMM_TRACED_TOWER = TowerShape(width=16, blocks=2, heads=4, mlp=64, output=CLASSES, eps=1e-5, activation="gelu")
TIMM_GATED_TOWER = replace(TIMM_TOWER, mlp=24, activation="silu")
TORCHVISION_IMAGE = ImageShape(image_size=16, patch=4)
TORCHVISION_TOWER = TowerShape(width=24, blocks=2, heads=2, mlp=48, output=CLASSES, eps=1e-6, activation="gelu")


def script(model, image):
    return torch.jit.script(model)


def trace(model, image):
    return torch.jit.trace(model, example_images(image), check_trace=False)  # check_archive checks the written file


def trace_without_grad(model, image):
    with torch.no_grad():
        return trace_both_towers(model, image)


def trace_both_towers(model, image):
    images, tokens = example_images(image), torch.arange(2 * int(model.context_length)).reshape(2, -1)
    inputs = {"forward": (images, tokens), "encode_image": images, "encode_text": tokens}
    return torch.jit.trace_module(model, inputs, check_trace=False)


def example_images(image, count=2):
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 3, image.image_size, image.image_size, generator=generator)


@dataclass(frozen=True)
class Archive:
    """One archive that must load: `build(image, tower)` gives the module, `export` its TorchScript."""

    naming: str
    image: ImageShape
    tower: TowerShape
    build: Callable
    export: Callable
    seed: int
    dtype: str = "f32"

    def module(self, tower=None):
        model = randomise(self.build(self.image, tower or self.tower), self.seed).eval()
        if self.build is openai_clip_words:
            # few values, which compress
            embedding = model.token_embedding.weight
            embedding.data = (embedding.data * 200).round().clamp(-4, 4) / 200
        return halve(model) if self.dtype == "f16" else model

    def facts(self):
        sizes = asdict(self.image) | asdict(self.tower)
        return {"naming": self.naming, "export": self.export.__name__.split("_")[0], "dtype": self.dtype} | sizes


OPENAI = Archive("openai", OPENAI_IMAGE, OPENAI_TOWER, openai_clip, trace_both_towers, seed=1)
OPEN_CLIP = Archive("openai", OPEN_CLIP_IMAGE, OPEN_CLIP_TOWER, open_clip_model, trace_without_grad, seed=2)
TIMM = Archive("timm", TIMM_IMAGE, TIMM_TOWER, timm_model, script, seed=3)
TORCHVISION = Archive("torchvision", TORCHVISION_IMAGE, TORCHVISION_TOWER, torchvision_model, trace, seed=5)
ARCHIVES = {
    "openai_clip": OPENAI,
    "openai_clip_half": replace(OPENAI, dtype="f16", build=partial(openai_clip, text=MANY_TOKENS)),
    "openai_clip_words": replace(OPENAI, build=openai_clip_words, seed=9),
    "openai_visual": replace(OPENAI, build=ImageTower, export=trace),
    "open_clip_traced": OPEN_CLIP,
    "open_clip_scripted": replace(OPEN_CLIP, export=script),
    "timm_scripted": TIMM,
    "timm_layer_scale": replace(TIMM, build=partial(timm_model, init_values=0.1), seed=8),
    "timm_gated": replace(TIMM, tower=TIMM_GATED_TOWER, build=gated_timm_model, seed=12),
    "timm_gated_traced": replace(TIMM, tower=TIMM_GATED_TOWER, build=gated_timm_model, export=trace, seed=13),
    "timm_traced": replace(TIMM, tower=TIMM_TRACED_TOWER, export=trace, seed=4),
    "torchvision_traced": TORCHVISION,
    "torchvision_scripted": replace(TORCHVISION, export=script),
}


def features(module, image):
    encode = getattr(module, "encode_image", module)
    with torch.no_grad():
        # not the batch size of the traces: an archive must not have it built in
        return encode(example_images(image, count=3)).double()


def relative_difference(a, b):
    return ((a - b).norm() / b.norm()).item()


def wrong_towers(tower):
    """The neighbours that a reader might confuse with `tower`."""
    other = "gelu" if tower.activation == "quick-gelu" else "quick-gelu"
    yield replace(tower, activation=other)
    yield from (replace(tower, eps=eps) for eps in (1e-5, 1e-6, 1e-12) if eps != tower.eps)
    divisors = (heads for heads in range(1, tower.width + 1) if tower.width % heads == 0)
    yield from (replace(tower, heads=heads) for heads in divisors if heads != tower.heads)


def check_sensitivity(name, archive):
    """Fail unless every wrong tower changes the output by MIN_CHANGE (1e-6 against 1e-12: a tenth of it)."""
    # in f32 also for the half archive: there rounding alone is larger than some of the changes
    archive = replace(archive, dtype="f32")
    truth = features(archive.module(), archive.image)
    smallest = float("inf")
    for wrong in wrong_towers(archive.tower):
        change = relative_difference(features(archive.module(wrong), archive.image), truth)
        both_small = wrong.eps != archive.tower.eps and max(wrong.eps, archive.tower.eps) <= 1e-6
        bound = MIN_CHANGE / 10 if both_small else MIN_CHANGE
        if change < bound:
            raise SystemExit(f"{name}: {wrong} changes the output by {change:.1e} only, bound {bound:.0e}")
        smallest = min(smallest, change)
    return smallest


def check_archive(name, archive, path):
    loaded = torch.jit.load(path)
    difference = relative_difference(features(loaded, archive.image), features(archive.module(), archive.image))
    bound = 1e-6 if archive.dtype == "f32" else 1e-3
    if difference > bound:
        raise SystemExit(f"{name}: the written archive differs from its module by {difference:.1e}, bound {bound:.0e}")


def report(path, size, note="", bound=MAX_ARCHIVE_BYTES):
    if size > bound:
        raise SystemExit(f"{path}: {size} bytes, more than {bound}")
    print(f"{path}  {size} bytes{note}")


def write_good(folder):
    for name, archive in ARCHIVES.items():
        smallest = check_sensitivity(name, archive)
        path = folder / f"{name}.pt"
        whole = archive.build is openai_clip_words
        size = write_archive(archive.export(archive.module(), archive.image), path, compress=whole)
        check_archive(name, archive, path)
        note = f", a wrong guess changes the output by {smallest:.1e} or more"
        report(path, size, note, MAX_ARCHIVE_BYTES + whole * MAX_VOCABULARY_BYTES)


def write_refused(folder):
    """Write the archives that must be refused; returns name -> why."""
    post_norm = timm_model(TIMM_IMAGE, TIMM_TOWER, block_fn=PostNormBlock)
    scripted = {
        "refused_conv": torch.jit.script(randomise(conv_net(CLASSES), 6).eval()),
        "refused_postnorm": torch.jit.script(randomise(post_norm, 7).eval()),
        "refused_no_parameters": torch.jit.freeze(torch.jit.script(TIMM.module())),
    }
    for name, module in scripted.items():
        path = folder / f"{name}.pt"
        report(path, write_archive(module, path))

    state = folder / "not_torchscript.pt"
    torch.save(TIMM.module().state_dict(), state)
    report(state, state.stat().st_size)

    whole = (folder / "timm_scripted.pt").read_bytes()
    truncated = folder / "truncated.pt"
    report(truncated, truncated.write_bytes(whole[: len(whole) // 2]))
    return {
        "refused_conv": "a convolutional network",
        "refused_postnorm": "post-norm blocks under timm's names: only the forward tells",
        "refused_no_parameters": "frozen: the weights are constants, no parameter is left",
        "not_torchscript": "a state dict written by torch.save",
        "truncated": "the first half of timm_scripted.pt",
    }


def write_head(folder):
    weight = 100.0 * nn.functional.normalize(example_head(), dim=1)
    path = folder / "heads" / "head_tiny.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_file({"weight": weight, "bias": torch.zeros(CLASSES)}, path)
    report(path, path.stat().st_size)


def example_head():
    return torch.randn(CLASSES, OPENAI_TOWER.output, generator=torch.Generator().manual_seed(10))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
    parser.add_argument("--out", type=Path, default=default, help="folder to write (default: tests/fixtures)")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)

    write_good(folder)
    refused = write_refused(folder)
    write_head(folder)
    facts = folder / "fixtures.json"
    archives = {name: archive.facts() for name, archive in ARCHIVES.items()}
    facts.write_text(json.dumps({"archives": archives, "refused": refused}, indent=2) + "\n")
    report(facts, facts.stat().st_size)

    written = [folder / f"{name}.pt" for name in [*archives, *refused]]
    total = sum(path.stat().st_size for path in written)
    if total > MAX_TOTAL_BYTES:
        raise SystemExit(f"{folder}: {total} bytes of archives, more than {MAX_TOTAL_BYTES}")
    print(f"{len(written)} archives, {total} bytes")


if __name__ == "__main__":
    main()
