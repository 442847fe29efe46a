#!/usr/bin/env python3
"""Runs what `bella export` prints: every exported model is loaded by its own package, PEFT where it is an adapter, and its
logits are compared with bella's; whole posteriors run in TorchScript and in ONNX Runtime at batch sizes 1, 7 and 64, after ONNX's
checker has read them; adapters come back bit for bit. Then adapters that PEFT itself has made come in, and bella's logits are compared with PEFT's.

    pip install torch timm open_clip_torch transformers peft safetensors onnx onnxruntime
    cargo build && python scripts/compare_exports.py [--bella target/debug/bella] [--only hf-vit]

The networks are those of tests/fixtures/folders: the smallest of every family, with random weights. With an older transformers
installed, `--generation 4` exports for it.
"""

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ROOT / "tests" / "fixtures" / "folders"
# Of files in half precision, whose weights are rounded, and of all others.
HALF_BOUND, BOUND = 3e-2, 1e-5
LAYERS = 'targets = ["attn.qkv", "attn.proj", "mlp.fc", "mlp.proj"]'
GATED = 'targets = ["attn.qkv", "mlp.gate", "mlp.fc", "mlp.proj"]'
NETWORKS = {
    "timm-vit": LAYERS, "timm-deit3": LAYERS, "timm-dinov2-registers": LAYERS, "timm-mean": LAYERS, "timm-siglip": LAYERS,
    "timm-dinov3": LAYERS, "open-clip": LAYERS, "hf-vit": LAYERS, "hf-dinov2": LAYERS, "hf-dinov2-registers": LAYERS,
    "hf-dinov2-swiglu": GATED, "hf-dinov3": LAYERS, "hf-dinov3-gated": GATED, "hf-clip": LAYERS, "hf-clip-both": LAYERS,
    "hf-siglip": LAYERS, "open-clip-timm": LAYERS, "open-clip-siglip": LAYERS,
}
# Of these, only whole models leave: no package of adapters has their layers, or transformers computes no logits of theirs.
WHOLE = {"timm-eva02": GATED, "timm-beit": LAYERS, "timm-dinov2-gated": GATED, "timm-deit-distilled": LAYERS, "hf-beit": LAYERS}
# Zero-shot models whose projections are trained, and what else their configs say of the checkpoint.
ZERO_SHOT = {"openai_clip_words.pt": "", "hf-siglip-both": "", "open-clip-siglip": "heads = 2"}
PROJECTIONS = """
name = "exports"
seed = 1
head.zero-shot.templates = ["a {{}}."]
head.zero-shot.class_names = ["a", "cat", "dog", "ship", "zebra", "frog", "truck", "maple", "7", "foot"]
data.digits.subset = {{ train = 24, test = 20 }}
method.svgd = {{ particles = 2, gamma = 0.01 }}
optimizer.adamw.lr = [1e-2, 3e-2]
train = {{ epochs = 2, batch_size = 8 }}
subspace.projections = {{}}
[checkpoint]
path = "{path}"
normalize = "clip"
{more}
"""
CONFIG = """
name = "exports"
seed = 1
checkpoint = {{ path = "{path}", normalize = "imagenet"{heads} }}
data.digits.subset = {{ train = 24, test = 20 }}
head.linear = {{}}
method.svgd = {{ particles = 2, gamma = 0.01 }}
optimizer.adamw.lr = 1e-2
train = {{ epochs = 2, batch_size = 8 }}
subspace.{subspace}
"""


class Place:
    def __init__(self, bella, folder):
        self.bella, self.folder = bella, folder

    def run(self, *arguments):
        command = [str(self.bella), *map(str, arguments), "--device", "cpu", "--threads", "1", "--out", str(self.folder / "results")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def train(self, network, subspace):
        return self.trained(configured(network, subspace))

    def trained(self, text):
        config = self.folder / "x.toml"
        config.write_text(text)
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        self.run("train", "--config", config)
        return config

    def export(self, *arguments):
        out = self.folder / "out"
        return self.run("export", *arguments, "--output", out, "--force")


def configured(network, subspace):
    """The config of a run. Those of open_clip's towers of timm name no number of heads."""
    heads = ", heads = 2" if Path(network).name.startswith("open-clip-") else ""
    return CONFIG.format(path=network, subspace=subspace, heads=heads)


def printed(code):
    """The relative difference that the printed lines print."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), small_towers():
        exec(code, {})
    return float(text.getvalue().split()[-1].strip("tensor()"))


@contextlib.contextmanager
def small_towers():
    """Makes the towers of timm within open_clip as small as the fixtures' ones, since open_clip's configs have no sizes of them."""
    import timm

    original = timm.create_model
    small = dict(img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2.0)

    def create(name, **more):
        return original(name, **more if name.startswith("local-dir:") else {**small, **more})

    timm.create_model = create
    try:
        yield
    finally:
        timm.create_model = original


def loadable(name, folder):
    """A copy of a network's folder with its weights under the name that its package looks for."""
    copy = folder / "networks" / name
    if not copy.exists():
        shutil.copytree(FOLDERS / name, copy)
        (copy / "reference.safetensors").unlink()
        if name.startswith("open-clip"):
            (copy / "model.safetensors").rename(copy / "open_clip_model.safetensors")
    return copy


def files(folder):
    """The content of all files below a folder."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def coming_back(place, config, package):
    """Export, import, export again: the same bytes."""
    place.export("--to", "peft", *package)
    first = files(place.folder / "out")
    run = place.run("import", place.folder / "out", "--config", config, "--force").strip()
    place.export(run, "--to", "peft", *package)
    yield "peft in and out", 0.0 if files(place.folder / "out") == first else float("inf")


def of_all(outputs, expected):
    """The largest relative difference of logits, and the absolute ones of what follows from them."""
    logits, probabilities, information = [torch.as_tensor(output).double() for output in outputs]
    mean = expected.double().softmax(-1).mean(0)
    entropy = lambda p: -torch.xlogy(p, p).sum(-1)
    spread = entropy(mean) - entropy(expected.double().softmax(-1)).mean(0)
    relative = (logits - expected).abs().max() / expected.abs().max()
    return max(relative, (probabilities - mean).abs().max(), (information - spread).abs().max()).item()


def runners(folder, what):
    """The function that runs a whole posterior on its inputs, in their order."""
    if what == "torchscript":
        model = torch.jit.load(folder / "posterior.pt")
        return model
    import onnx
    import onnxruntime

    file = folder / "posterior.onnx"
    onnx.checker.check_model(file, full_check=True)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return lambda *inputs: session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs)})


def together(place, kind):
    """The whole posterior of the run at hand in one file, at batch sizes 1, 7 and 64."""
    for what in ("torchscript", "onnx"):
        for options in ([], ["--particle", 1], ["--preprocess"], ["--as", "f16"]):
            if what == "torchscript" and "f16" in options:
                options = ["--as", "bf16"]
            place.export("--to", what, *options)
            expected = load_file(place.folder / "out" / "expected.safetensors")
            images, logits = expected["images" if "--preprocess" in options else "pixels"], expected["logits"]
            worst, run = 0.0, runners(place.folder / "out", what)
            for count in (1, 7, 64):
                index = torch.arange(count) % len(images)
                with torch.no_grad():
                    worst = max(worst, of_all(run(images[index]), logits[:, index]))
            yield f"{what} {kind} {''.join(map(str, options)).strip('-')}", worst


def leaving(place, name, targets, generation):
    network = loadable(name, place.folder)
    package = ["--for", f"transformers-{generation}"] if name.startswith("hf-") else []
    config = place.train(network, f"low-rank = {{ rank = 2, {targets} }}")
    for what, more in [("peft", ["--particle", 1]), ("peft", ["--soup"]), ("weights", ["--particle", 0])]:
        code = place.export("--to", what, *package, *more)
        yield f"{what} {more[0].strip('-')}", printed(code)
    if generation == 5:
        yield from together(place, "low-rank")
    yield from coming_back(place, config, package)
    place.train(network, "full = {}")
    if generation == 5:
        yield from together(place, "full")
    yield "weights full", printed(place.export("--to", "weights", *package, "--particle", 0))


def only_whole(place, name, targets):
    network = loadable(name, place.folder)
    for kind in (f"low-rank = {{ rank = 2, {targets} }}", "full = {}"):
        place.train(network, kind)
        yield from together(place, kind.split()[0])


def halves(place, name):
    """Whole models of which a gate or its factor alone was trained; some packages store both as one tensor."""
    network = loadable(name, place.folder)
    for layer in ("mlp.gate", "mlp.fc"):
        place.train(network, f'low-rank = {{ rank = 2, targets = ["{layer}"] }}')
        yield f"weights {layer} alone", printed(place.export("--to", "weights", "--particle", 0))


def projections(place, name, more):
    """Models with projections of their own, and their text towers: the head follows from them."""
    network = loadable(name, place.folder) if not name.endswith(".pt") else FOLDERS.parent / name
    place.trained(PROJECTIONS.format(path=network, more=more))
    yield from together(place, "projections")
    for options in (["--particle", 0], ["--particle", 1], ["--soup"]):
        yield f"weights {options[0].strip('-')}", printed(place.export("--to", "weights", *options))


def page(place):
    """The logits that docs/exchange.md computes from posterior.safetensors."""
    network = loadable("timm-vit", place.folder)
    place.train(network, f"low-rank = {{ rank = 2, {LAYERS} }}")
    place.export("--to", "peft", "--particle", 0)
    expected = load_file(place.folder / "out" / "expected.safetensors")
    text = (ROOT / "docs" / "exchange.md").read_text().split("```python\n")[1].split("```")[0]
    posterior = next((place.folder / "results" / "runs").rglob("posterior.safetensors"))
    text = text.replace("posterior.safetensors", str(posterior)).replace("local-dir:checkpoint", f"local-dir:{network}")
    names = {"pixels": expected["pixels"]}
    exec(text, names)
    difference = (names["logits"] - expected["logits"]).abs().max() / expected["logits"].abs().max()
    yield "docs/exchange.md", difference.item()


def randomised(model, number):
    """Random values in everything that is trained."""
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def packages(place):
    """Networks of packages: the folder, the function that makes the model, the logits of its output, and PEFT's settings."""
    import open_clip
    import timm
    import transformers

    def timm_vit(folder):
        model = timm.create_model(f"local-dir:{folder}", pretrained=True)
        model.reset_classifier(10)
        return model

    def classifying(kind):
        return lambda folder: kind.from_pretrained(folder, num_labels=10, ignore_mismatched_sizes=True)

    rank = dict(r=2, lora_alpha=3)
    cases = {
        "timm-vit": (timm_vit, lambda model, x: model(x),
                     dict(r=3, lora_alpha=5, target_modules=["qkv", "fc1"], modules_to_save=["head"])),
        "hf-vit": (classifying(transformers.ViTForImageClassification), lambda model, x: model(x).logits,
                   dict(**rank, use_rslora=True, rank_pattern={"v_proj": 4}, alpha_pattern={"fc2": 7},
                        target_modules=["q_proj", "v_proj", "fc2"], modules_to_save=["classifier"])),
        "hf-dinov2-registers": (classifying(transformers.Dinov2WithRegistersForImageClassification), lambda model, x: model(x).logits,
                                dict(**rank, target_modules=["k_proj", "fc1"], modules_to_save=["classifier"])),
        "hf-clip": (transformers.CLIPVisionModelWithProjection.from_pretrained, lambda model, x: model(x).image_embeds,
                    dict(**rank, target_modules=["q_proj", "out_proj", "fc1"])),
        "open-clip": (lambda folder: open_clip.create_model(f"local-dir:{folder}"), lambda model, x: model.encode_image(x),
                      dict(**rank, target_modules=r"visual\..*\.(attn|c_fc)")),
    }
    return {name: (loadable(name, place.folder), *case) for name, case in cases.items()}


def compared(place, name, network, folders, logits, options=()):
    """Imports folders and compares the logits of every particle with those of the package's model."""
    config = place.folder / "x.toml"
    config.write_text(configured(network, "low-rank.rank = 2"))
    shutil.rmtree(place.folder / "results", ignore_errors=True)
    run = place.run("import", *folders, "--config", config, *options).strip()
    place.export(run, "--to", "torchscript")
    expected = load_file(place.folder / "out" / "expected.safetensors")
    for number, own in enumerate(logits):
        with torch.no_grad():
            found = own(expected["pixels"])
        difference = (found - expected["logits"][number]).abs().max() / found.abs().max()
        yield f"import of {name} {number}", difference.item()


def coming(place):
    """Adapters that PEFT makes of the packages' models, whole fine-tuned models, and adapters merged into one."""
    from peft import LoraConfig, get_peft_model

    for name, (network, make, call, settings) in packages(place).items():
        beside = "modules_to_save" not in settings
        head = {"weight": torch.randn(10, 16, generator=torch.Generator().manual_seed(5)), "bias": torch.arange(10.0) / 10}
        folders, models = [], []
        for number in range(2):
            models.append(randomised(get_peft_model(make(network), LoraConfig(**settings)), number))
            folders.append(place.folder / f"peft-{name}-{number}")
            models[-1].save_pretrained(folders[-1])
            if beside:
                head["weight"] = head["weight"][:, : call(models[-1], torch.zeros(1, 3, 16, 16)).shape[1]].contiguous()
                save_file(head, folders[-1] / "head.safetensors")

        def logits(model):
            return lambda x: call(model, x) @ head["weight"].T + head["bias"] if beside else call(model, x)

        yield from compared(place, f"PEFT's {name}", network, folders, [logits(model) for model in models])
        if not name.startswith("hf-"):
            continue
        merged = models[0].merge_and_unload()
        folder = place.folder / f"merged-{name}"
        merged.save_pretrained(folder)
        if beside:
            save_file(head, folder / "head.safetensors")
        yield from compared(place, f"merged {name}", network, [folder], [logits(merged)])
        # The ranks of its queries, keys and values add up.
        yield from compared(place, f"merged {name} at rank 8", network, [folder], [logits(merged)], ["--rank", "8"])


def started(description):
    """The options of a comparison, whose packages are kept from the network."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bella", default=ROOT / "target" / "debug" / "bella")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--generation", type=int, choices=[4, 5], default=5)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return parser.parse_args()


def main():
    options = started(__doc__)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(options.bella).resolve(), Path(folder))
        for name, targets in (NETWORKS | WHOLE).items():
            if options.only and name not in options.only or options.generation == 4 and not name.startswith("hf-"):
                continue
            if name in WHOLE and options.generation == 4:
                continue
            found = only_whole(place, name, targets) if name in WHOLE else leaving(place, name, targets, options.generation)
            if targets == GATED and options.generation == 5:
                found = [*found, *halves(place, name)]
            for what, difference in found:
                half = what.endswith("16")
                print(f"{name:24} {what:32} {difference:.1e}", flush=True)
                worst = max(worst, difference * (BOUND / HALF_BOUND if half else 1))
        for name, more in ZERO_SHOT.items():
            if options.only and name not in options.only or options.generation == 4:
                continue
            for what, difference in projections(place, name, more):
                print(f"{name:24} {what:32} {difference:.1e}", flush=True)
                worst = max(worst, difference * (BOUND / HALF_BOUND if what.endswith("16") else 1))
        if (not options.only or options.only == ["import"]) and options.generation == 5:
            for what, difference in [*page(place), *coming(place)]:
                print(f"{what:45} {difference:.1e}", flush=True)
                worst = max(worst, difference)
    print(f"largest relative difference {worst:.1e}, bound {BOUND:.0e}")
    sys.exit(worst > BOUND)


if __name__ == "__main__":
    main()
