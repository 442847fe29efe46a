#!/usr/bin/env python3
"""Adapters of LoRA's variants, there and back: bella trains them with ranks and alphas of single layers, rsLoRA, PiSSA, DoRA and all
together, PEFT loads what `bella export --to peft` wrote, and its logits are compared with bella's. Then DoRA adapters that PEFT has
made come in, and bella's logits are compared with PEFT's. Needs peft 0.18 or newer; last run with peft 0.21.2.

    pip install torch timm transformers peft safetensors
    cargo build && python scripts/compare_lora.py [--bella target/debug/bella] [--only hf-vit]
"""

import sys
import tempfile
from pathlib import Path

import peft
import torch

from compare_exports import BOUND, LAYERS, Place, coming_back, compared, loadable, printed, randomised, started

PATTERNS = 'rank_pattern = ["0.mlp.fc=4", "attn.proj=1"], alpha_pattern = ["mlp.proj=5"]'
VARIANTS = {
    "patterns": PATTERNS,
    "rslora": f"rslora = true, {PATTERNS}",
    "pissa": 'init = "pissa"',
    "pissa, patterns": f'init = "pissa", {PATTERNS}',
    "dora": "dora = true",
    "dora, rslora, patterns": f"dora = true, rslora = true, {PATTERNS}",
    "dora, pissa, patterns": f'dora = true, init = "pissa", {PATTERNS}',
}


def leaving(place, only):
    for name in ["timm-vit", "hf-vit", "hf-dinov2-registers"]:
        if only and name not in only:
            continue
        network = loadable(name, place.folder)
        for variant, keys in VARIANTS.items():
            config = place.train(network, f"low-rank = {{ rank = 2, {LAYERS}, {keys} }}")
            package = ["--for", "transformers-5"] if name.startswith("hf-") else []
            for what, particle in (("peft", 0), ("peft", 1), ("weights", 1)):
                code = place.export("--to", what, *package, "--particle", particle)
                yield f"{name} {variant}: {what} {particle}", printed(code)
            # Scales of single layers go into B, so that its bits change.
            if PATTERNS not in keys:
                yield from ((f"{name} {variant}: {what}", found) for what, found in coming_back(place, config, package))


def coming(place):
    import timm
    import transformers

    def timm_vit(folder):
        model = timm.create_model(f"local-dir:{folder}", pretrained=True)
        model.reset_classifier(10)
        return model

    kind = transformers.ViTForImageClassification
    hf_vit = lambda folder: kind.from_pretrained(folder, num_labels=10, ignore_mismatched_sizes=True)
    cases = {
        "timm-vit": (timm_vit, lambda model, x: model(x), dict(target_modules=["qkv", "fc1"], modules_to_save=["head"])),
        "hf-vit": (hf_vit, lambda model, x: model(x).logits,
                   dict(use_rslora=True, rank_pattern={"v_proj": 4}, alpha_pattern={"fc2": 7},
                        target_modules=["q_proj", "v_proj", "fc2"], modules_to_save=["classifier"])),
    }
    for name, (make, call, settings) in cases.items():
        network = loadable(name, place.folder)
        folders, logits = [], []
        for number in range(2):
            config = peft.LoraConfig(r=3, lora_alpha=5, use_dora=True, **settings)
            model = randomised(peft.get_peft_model(make(network), config), number)
            folders.append(place.folder / f"dora-{name}-{number}")
            model.save_pretrained(folders[-1])
            logits.append(lambda x, model=model: call(model, x))
        yield from compared(place, f"PEFT's DoRA of {name}", network, folders, logits)


def main():
    options = started(__doc__)
    print("peft", peft.__version__, "torch", torch.__version__)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(options.bella).resolve(), Path(folder))
        for found in (coming(place), leaving(place, options.only)):
            for what, difference in found:
                print(f"{what:50} {difference:.1e}", flush=True)
                worst = max(worst, difference)
    print(f"largest relative difference {worst:.1e}, bound {BOUND:.0e}")
    sys.exit(worst > BOUND)


if __name__ == "__main__":
    main()
