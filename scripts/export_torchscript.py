#!/usr/bin/env python3
"""Export a network of open_clip, timm, torchvision or Hugging Face as a TorchScript archive for bella.

    export_torchscript.py open_clip ViT-B-32 --weights laion2b_s34b_b79k --out ViT-B-32-laion2b.pt
    export_torchscript.py timm vit_base_patch16_224.augreg_in21k --weights pretrained --out vit-b-16.pt
    export_torchscript.py timm resnet50 --weights finetuned.pth --out resnet50.pt
    export_torchscript.py torchvision vit_b_16 --weights IMAGENET1K_V1 --out vit_b_16.pt
    export_torchscript.py huggingface openai/clip-vit-base-patch32 --weights pretrained --out clip-hf.pt

Vision transformers and CLIP run by bella's own forward pass. Any other network (ResNet, ConvNeXt, Swin, …) is written as a
module that runs by its own forward: `[checkpoint] kind = "module"`. CLIP models keep their text tower (`encode_image`,
`encode_text`, `logit_scale`), so that bella builds zero-shot heads from class names.

`--weights` also takes a local file (.pth, .pt, .bin, .safetensors), whose number of classes and image size are read from
its tensors (`--num-classes` and `--image-size` where they do not tell). For Hugging Face, and for a folder that timm has
written, give the folder as the model and `--weights pretrained`; `random` needs no download. The written archive is
loaded again and compared with the library's own model on fresh input of another batch size; then `bella inspect` is run
where the binary is found. A file that does not pass is removed.
Needs: torch and the library; for Hugging Face ViTs also timm. Versions 4 and 5 of transformers are known.
"""

import argparse
import difflib
import math
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from clip_modules import randomise, write_archive

MAX_DIFFERENCE = 1e-5
START_OF_TEXT, END_OF_TEXT = 49406, 49407


@dataclass(frozen=True)
class Sizes:
    """What the command line says; None where the weights shall tell."""

    classes: int | None
    image: int | None


class Export:
    """A module to trace, and the library's own functions that it must reproduce: method name -> callable.

    `native` says whether bella's own forward pass serves it, `normalize` is the mean and std of its images where they are known.
    """

    def __init__(self, module, image_size, truth, context=None, native=True, normalize=None):
        self.module, self.image_size, self.truth, self.context = module, image_size, truth, context
        self.native, self.normalize = native, normalize


def prepare(model, weights):
    return (randomise(model, seed=1) if weights == "random" else model).eval().float()


def side(size):
    sides = set(size) if isinstance(size, (tuple, list)) else {size}
    if len(sides) != 1:
        sys.exit(f"the model takes images of {size}: bella takes square ones (--image-size)")
    return sides.pop()


def from_open_clip(name, weights, sizes):
    import open_clip

    pretrained = None if weights == "random" else weights
    more = {"force_image_size": sizes.image} if sizes.image else {}
    model = prepare(open_clip.create_model(name, pretrained=pretrained, precision="fp32", output_dict=False, **more), weights)
    truth = {"encode_image": model.encode_image, "encode_text": model.encode_text}
    return Export(model, side(model.visual.image_size), truth, context=model.context_length)


def state_of(path):
    """The tensors of a checkpoint file, out of the tables that training scripts put around them."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        state = load_file(path)
    else:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            sys.exit(
                f"{path}: holds more than tensors, which torch refuses to run ({str(error).splitlines()[0]}): save "
                "model.state_dict() where it was trained"
            )
    for key in ("state_dict_ema", "model_ema", "state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not state or not all(isinstance(t, torch.Tensor) for t in state.values()):
        sys.exit(f"{path}: is no table of tensors: save model.state_dict()")
    for prefix in ("module.", "_orig_mod.", "model."):
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def classes_of(state, names):
    """The rows of the first classifier of these names."""
    for name in names:
        if f"{name}.weight" in state:
            return state[f"{name}.weight"].shape[0]
    return None


def image_size_of(state):
    """The image size that the position embeddings of a vision transformer tell."""
    for position, patch in (("pos_embed", "patch_embed.proj.weight"), ("encoder.pos_embedding", "conv_proj.weight")):
        if position in state and patch in state and state[position].dim() == 3:
            tokens, edge = state[position].shape[1], state[patch].shape[-1]
            for prefix in (1, 0, 2, 5):  # class token, none, distillation token, registers
                grid = math.isqrt(max(tokens - prefix, 0))
                if grid * grid == tokens - prefix:
                    return grid * edge
    return None


def filled(model, state, path):
    """Load every tensor; a name that is missing or left over ends the program with its name."""
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except RuntimeError as error:
        shapes = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        sys.exit(f"{path}: {shapes[0] if shapes else error}: another model than the one named, or set --num-classes or --image-size")
    if missing or unexpected:
        sys.exit(
            f"{path}: {len(missing)} parameters of the model are missing ({', '.join(missing[:3])}) and {len(unexpected)} "
            f"are left over ({', '.join(unexpected[:3])}): another model than the one named"
        )
    return model


def from_timm(name, weights, sizes):
    import timm

    if Path(name).is_dir():
        name = f"local-dir:{Path(name).resolve()}"
    elif not timm.is_model(name.split("/")[-1].split(".")[0]) and not name.startswith("hf"):
        near = difflib.get_close_matches(name.split(".")[0], timm.list_models(), 3)
        sys.exit(f"{name}: no model of timm {timm.__version__}; near: {', '.join(near) or 'none'}")
    path = None if weights in ("random", "pretrained") else Path(weights)
    classes, size, state = sizes.classes, sizes.image, None
    if path:
        state = state_of(path)
        classifier = timm.get_pretrained_cfg_value(name, "classifier") or "head"
        names = [classifier] if isinstance(classifier, str) else list(classifier)
        classes = classes or classes_of(state, names) or 0
        size = size or image_size_of(state)
    more = {} if classes is None else {"num_classes": classes}
    try:
        model = timm.create_model(name, pretrained=weights == "pretrained", **more, **({"img_size": size} if size else {}))
    except TypeError:  # a network without position embeddings takes any size, and no such argument
        model = timm.create_model(name, pretrained=weights == "pretrained", **more)
    if state is not None:
        filled(model, state, path)
    model = prepare(model, weights)
    own = getattr(getattr(model, "patch_embed", None), "img_size", None) or model.default_cfg["input_size"][1:]
    native = isinstance(model, timm.models.vision_transformer.VisionTransformer)
    cfg = model.pretrained_cfg
    normalize = (cfg["mean"], cfg["std"]) if cfg.get("mean") else None
    return Export(model, size or side(own), {"forward": model}, native=native, normalize=normalize)


def from_torchvision(name, weights, sizes):
    import torchvision

    if name not in torchvision.models.list_models():
        near = difflib.get_close_matches(name, torchvision.models.list_models(), 3)
        sys.exit(f"{name}: no model of torchvision {torchvision.__version__}; near: {', '.join(near) or 'none'}")
    path = Path(weights) if weights != "random" and Path(weights).is_file() else None
    native = name.startswith("vit_")
    state = state_of(path) if path else {}
    size = sizes.image or image_size_of(state)
    classes = sizes.classes or classes_of(state, ("heads.head", "fc", "head", *(f"classifier.{i}" for i in range(7, -1, -1)), "classifier"))
    more = ({"num_classes": classes} if classes else {}) | ({"image_size": size} if native and size else {})
    if name in ("googlenet", "inception_v3") and weights in ("random", str(path)):
        more |= {"init_weights": False, "aux_logits": any(key.startswith("AuxLogits") or key.startswith("aux") for key in state)}
    model = torchvision.models.get_model(name, weights=None if path or weights == "random" else weights, **more)
    if path:
        filled(model, state, path)
    model = prepare(model, weights)
    usual = getattr(model, "image_size", 299 if name == "inception_v3" else 224)
    return Export(model, size or usual, {"forward": model}, native=native)


class Logits(torch.nn.Module):
    """A Hugging Face classifier that returns its logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images, return_dict=False)[0]


def projected(found):
    """The features of a tower: a tensor before version 5 of transformers, a part of the output since."""
    return found if isinstance(found, torch.Tensor) else found.pooler_output


def from_huggingface(name, weights, sizes):
    from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

    from huggingface_vits import clip_of, vit_of

    if weights not in ("random", "pretrained"):
        sys.exit("--weights: `pretrained` or `random` for Hugging Face; a folder of yours is the model")
    config = AutoConfig.from_pretrained(name)
    if sizes.classes is not None and weights == "random":
        config.num_labels = sizes.classes
    kind = AutoModel if config.model_type == "clip" else AutoModelForImageClassification
    try:
        model = prepare(kind.from_config(config) if weights == "random" else kind.from_pretrained(name), weights)
    except ValueError as error:
        sys.exit(f"{name}: a {config.model_type} model, which classifies no images ({str(error).splitlines()[0][:80]}…)")
    if config.model_type == "clip":
        truth = {
            "encode_image": lambda images: projected(model.get_image_features(pixel_values=images)),
            "encode_text": lambda tokens: projected(model.get_text_features(input_ids=tokens)),
        }
        context = config.text_config.max_position_embeddings
        return Export(clip_of(model), config.vision_config.image_size, truth, context)
    truth = {"forward": lambda images: model(images).logits}
    if config.model_type in ("vit", "deit"):
        return Export(vit_of(model), side(config.image_size), truth)
    size = sizes.image or side(getattr(config, "image_size", None) or 224)
    return Export(Logits(model), size, truth, native=False)


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
    """The largest difference of the archive from the library's model, on other batch sizes than it was traced with."""
    archive = torch.jit.load(path, map_location="cpu")
    worst = 0.0
    for batch in (3, 1):
        images, tokens = inputs(export, batch=batch, seed=3)
        for method, own in export.truth.items():
            given = arguments(method, images, tokens)
            try:
                found, expected = getattr(archive, method)(*given), own(*given)
            except RuntimeError as error:
                print(f"self-check {method}: fails on {batch} images ({str(error).strip().splitlines()[-1][:100]})")
                return math.inf
            difference = ((found - expected).abs().max() / expected.abs().max()).item()
            print(f"self-check {method}, {batch} images: relative difference {difference:.1e} (bound {MAX_DIFFERENCE:.0e})")
            worst = max(worst, difference)
    return worst


def write(export, path):
    """Write the traced module; if it knows its batch size, the scripted one."""
    makers = [("traced", trace)] + ([("scripted", lambda e: torch.jit.script(e.module))] if export.context is None else [])
    for how, make in makers:
        try:
            size = write_archive(make(export), path)
        except Exception as error:  # torch.jit raises many kinds
            print(f"{how}: {str(error).strip().splitlines()[-1][:150]}")
            continue
        parameters = sum(parameter.numel() for parameter in export.module.parameters())
        print(f"{path.name}  {size} bytes, {how}, {parameters} parameters, {export.image_size} pixels a side")
        if check(export, path) <= MAX_DIFFERENCE:
            return
    sys.exit(f"{path.name}: no archive reproduces the model, so none is written")


def inspect(export, path, out, binary):
    """Let bella read the archive, natively or as a module, before it takes its place at `out`."""
    found = binary or shutil.which("bella") or Path(__file__).resolve().parent.parent / "target/release/bella"
    as_module = ["--module", "--image-size", str(export.image_size)]
    if not Path(found).is_file():
        print(f"no bella binary found: run `bella inspect {out}{'' if export.native else ' ' + ' '.join(as_module)}` yourself")
        return export.native
    for options in ([[]] if export.native else []) + [as_module]:
        if subprocess.run([found, "inspect", path, *options]).returncode == 0:
            return not options
        if export.context is not None:
            break
    sys.exit(f"{path.name}: bella refuses it, so it is not written")


def advise(export, path, native):
    kind = "" if native else f'kind = "module"\nimage_size = {export.image_size}\n'
    if export.normalize:
        mean, std = ([round(float(value), 6) for value in values] for values in export.normalize)
        normalize = f"{{ mean = {mean}, std = {std} }}"
    else:
        normalize = "…  # what the network was trained with"
    print(f'\n[checkpoint]\npath = "{path}"\n{kind}normalize = {normalize}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("origin", choices=LIBRARIES, help="the library that the model comes from")
    parser.add_argument("model", help="the library's name of it, or a folder")
    parser.add_argument("--weights", required=True, help="a tag of the library, `pretrained`, a file, or `random`")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--num-classes", type=int, help="classes of the classifier (default: those of the weights)")
    parser.add_argument("--image-size", type=int, help="height and width in pixels (default: that of the weights)")
    parser.add_argument("--bella", help="the binary for the last check (default: found in PATH or target/release)")
    args = parser.parse_args()

    sizes = Sizes(args.num_classes, args.image_size)
    with torch.no_grad():  # traced with gradients, some layers take another path that knows the batch size
        export = LIBRARIES[args.origin](args.model, args.weights, sizes)
    folder = args.out.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    # An earlier archive stays until the new one has passed.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as place:
        made = Path(place) / args.out.name
        with torch.no_grad():
            write(export, made)
        native = inspect(export, made, args.out, args.bella)
        made.replace(args.out)
    advise(export, args.out, native)


if __name__ == "__main__":
    main()
