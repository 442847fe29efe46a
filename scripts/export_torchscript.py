#!/usr/bin/env python3
"""Export a vision transformer of open_clip, timm, torchvision or Hugging Face as a TorchScript archive for bella.

    export_torchscript.py open_clip ViT-B-32 --weights laion2b_s34b_b79k --out ViT-B-32-laion2b.pt
    export_torchscript.py timm vit_base_patch16_224.augreg_in21k --weights pretrained --out vit-b-16.pt
    export_torchscript.py torchvision vit_b_16 --weights IMAGENET1K_V1 --out vit_b_16.pt
    export_torchscript.py huggingface openai/clip-vit-base-patch32 --weights pretrained --out clip-hf.pt

CLIP models keep their text tower (`encode_image`, `encode_text`, `logit_scale`), so that bella builds zero-shot heads from
class names. `--weights` also takes a local file (Hugging Face: give a local folder as the model); `random` needs no
download. The written archive is loaded again and compared with the library's own model on fresh input; then
`bella inspect` is run where the binary is found.
Needs: torch 2.11 and the library; for Hugging Face ViTs also timm.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from clip_modules import randomise, write_archive

MAX_DIFFERENCE = 1e-5
START_OF_TEXT, END_OF_TEXT = 49406, 49407


class Export:
    """A module to trace, and the library's own functions that it must reproduce: method name -> callable."""

    def __init__(self, module, image_size, truth, context=None):
        self.module, self.image_size, self.truth, self.context = module, image_size, truth, context


def prepare(model, weights):
    return (randomise(model, seed=1) if weights == "random" else model).eval().float()


def side(size):
    return size[0] if isinstance(size, (tuple, list)) else size


def from_open_clip(name, weights):
    import open_clip

    pretrained = None if weights == "random" else weights
    model = prepare(open_clip.create_model(name, pretrained=pretrained, precision="fp32", output_dict=False), weights)
    truth = {"encode_image": model.encode_image, "encode_text": model.encode_text}
    return Export(model, side(model.visual.image_size), truth, context=model.context_length)


def from_timm(name, weights):
    import timm

    local = weights not in ("random", "pretrained")
    model = timm.create_model(name, pretrained=weights == "pretrained", checkpoint_path=weights if local else "")
    model = prepare(model, weights)
    return Export(model, side(model.patch_embed.img_size), {"forward": model})


def from_torchvision(name, weights):
    import torchvision

    local = weights != "random" and Path(weights).is_file()
    model = torchvision.models.get_model(name, weights=None if local or weights == "random" else weights)
    if local:
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return Export(prepare(model, weights), model.image_size, {"forward": model})


def from_huggingface(name, weights):
    from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

    from huggingface_vits import clip_of, vit_of

    config = AutoConfig.from_pretrained(name)
    kinds = {"clip": AutoModel, "vit": AutoModelForImageClassification, "deit": AutoModelForImageClassification}
    if config.model_type not in kinds:
        sys.exit(f"{name}: a {config.model_type} model, but only {', '.join(kinds)} are known here")
    kind = kinds[config.model_type]
    model = prepare(kind.from_config(config) if weights == "random" else kind.from_pretrained(name), weights)
    if config.model_type != "clip":
        return Export(vit_of(model), config.image_size, {"forward": lambda images: model(images).logits})

    def encode_image(images):
        return model.visual_projection(model.vision_model(images).pooler_output)

    def encode_text(tokens):
        return model.text_projection(model.text_model(tokens).pooler_output)

    truth = {"encode_image": encode_image, "encode_text": encode_text}
    context = config.text_config.max_position_embeddings
    return Export(clip_of(model), config.vision_config.image_size, truth, context)


LIBRARIES = {
    "open_clip": from_open_clip,
    "timm": from_timm,
    "torchvision": from_torchvision,
    "huggingface": from_huggingface,
}


def inputs(export, batch, seed):
    """Random images and texts: start, tokens, end, zeros."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, 3, export.image_size, export.image_size, generator=generator)
    if export.context is None:
        return images, None
    tokens = torch.zeros(batch, export.context, dtype=torch.long)
    for row, text in enumerate(tokens):
        length = export.context - 5 * row
        text[:length] = torch.randint(1, START_OF_TEXT, (length,), generator=generator)
        text[0], text[length - 1] = START_OF_TEXT, END_OF_TEXT
    return images, tokens


def arguments(method, images, tokens):
    return {"encode_image": (images,), "encode_text": (tokens,)}.get(method, (images,))


def trace(export):
    images, tokens = inputs(export, batch=2, seed=2)
    if export.context is None:
        return torch.jit.trace(export.module, images, check_trace=False)
    methods = {"forward": (images, tokens), "encode_image": images, "encode_text": tokens}
    return torch.jit.trace_module(export.module, methods, check_trace=False)


def check(export, path):
    """Compare the archive with the library's model, on another batch size than it was traced with."""
    archive = torch.jit.load(path, map_location="cpu")
    images, tokens = inputs(export, batch=3, seed=3)
    worst = 0.0
    for method, own in export.truth.items():
        given = arguments(method, images, tokens)
        found, expected = getattr(archive, method)(*given), own(*given)
        difference = ((found - expected).abs().max() / expected.abs().max()).item()
        print(f"self-check {method}: relative difference {difference:.1e} (bound {MAX_DIFFERENCE:.0e})")
        worst = max(worst, difference)
    if not worst <= MAX_DIFFERENCE:
        sys.exit(f"{path}: the archive does not reproduce the model")


def inspect(path, binary):
    found = binary or shutil.which("bella") or Path(__file__).resolve().parent.parent / "target/release/bella"
    if not Path(found).is_file():
        print(f"no bella binary found: run `bella inspect {path}` yourself")
        return
    if subprocess.run([found, "inspect", path]).returncode != 0:
        sys.exit(f"{path}: bella refuses it")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("origin", choices=LIBRARIES, help="the library that the model comes from")
    parser.add_argument("model", help="the library's name of it")
    parser.add_argument("--weights", required=True, help="a tag of the library, `pretrained`, a file, or `random`")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--bella", help="the binary for the last check (default: found in PATH or target/release)")
    args = parser.parse_args()

    with torch.no_grad():  # traced with gradients, some layers take another path that knows the batch size
        export = LIBRARIES[args.origin](args.model, args.weights)
        size = write_archive(trace(export), args.out)
        parameters = sum(parameter.numel() for parameter in export.module.parameters())
        print(f"{args.out}  {size} bytes, {parameters} parameters, {export.image_size} pixels a side")
        check(export, args.out)
    inspect(args.out, args.bella)


if __name__ == "__main__":
    main()
