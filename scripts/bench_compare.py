"""Bella's speed and memory against plain PyTorch and against itself, as ratios: programs take turns, medians over rounds.

Wall seconds are what counts on a machine that does nothing else; on a shared one compare the ratios of processor seconds, with
--threads 1. Prints a Markdown table; the raw numbers go to --raw. Needs: torch, a release build of bella.

    python scripts/bench_compare.py --bella target/release/bella                  # everything
    python scripts/bench_compare.py --bella target/release/bella --only step,memory
    python scripts/bench_compare.py --bella target/release/bella --only before --before bella-of-last-week
    python scripts/bench_compare.py --bella target/release/bella --only module --module resnet20-cifar10.pt
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
FEW = ["--steps", "2", "--warmup", "1"]


@dataclass
class Side:
    """One program of a comparison, with a time of each round."""

    name: str
    run: object
    wall: list = field(default_factory=list)
    processor: list = field(default_factory=list)
    last: dict = field(default_factory=dict)


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rows = []
        self.precisions = ["f32", "bf16"] if self.computes("bf16") else ["f32"]
        if "bf16" not in self.precisions:
            print("left out: every row of bf16, which bella does not compute on this processor", file=sys.stderr)

    def computes(self, precision):
        """Whether bella computes in a precision on this processor."""
        smallest = ["--shapes", "clip-mini", "--particles", "1", "--batch-size", "1", "--steps", "0", "--predictions", "1"]
        with tempfile.TemporaryDirectory() as out:
            command = [self.arguments.bella, "bench", "--device", "cpu", "--out", out, *smallest, "--precisions", precision]
            found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode != 0 and "instructions" not in found.stderr:
            raise SystemExit(found.stderr)
        return found.returncode == 0

    def bella(self, *options, part="step", binary=None):
        """Runs `bella bench`; the row it writes, with the seconds of `part`."""

        def run():
            with tempfile.TemporaryDirectory() as out:
                command = [binary or self.arguments.bella, "bench", "--device", "cpu", "--out", out, *self.threads(), *options]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                with open(Path(out) / "bench.csv", newline="") as file:
                    [row] = csv.DictReader(file)
            if row["status"] != "ok":
                raise SystemExit(f"{' '.join(options)}: {row['status']}")
            return float(row[f"{part}_seconds"] or "nan"), float(row[f"{part}_processor_seconds"] or "nan"), row

        return run

    def torch(self, script, *options):
        def run():
            command = [sys.executable, HERE / script, *self.threads(), *options]
            row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            return statistics.median(row["seconds"]), statistics.median(row["processor_seconds"]), row

        return run

    def threads(self):
        return ["--threads", str(self.arguments.threads)]

    def turns(self, sides, rounds=None):
        """Every round runs all sides one after the other, another one first each time."""
        for turn in range(rounds or self.arguments.rounds):
            start = turn % len(sides)
            for side in sides[start:] + sides[:start]:
                wall, processor, side.last = side.run()
                side.wall.append(wall)
                side.processor.append(processor)
                print(f"  {side.name}: {wall:.4f} s, processor {processor:.4f} s", file=sys.stderr)

    def compare(self, what, goal, against, side, at_most=False):
        """How many times faster than `against`, or with `at_most` how many times as slow."""

        def ratio(kind):
            pairs = list(zip(getattr(against, kind), getattr(side, kind)))
            return statistics.median(b / a if at_most else a / b for a, b in pairs)

        seconds = f"{statistics.median(against.wall):.4g} / {statistics.median(side.wall):.4g} s"
        wall, processor = ratio("wall"), ratio("processor")
        self.add(what, f"{side.name} against {against.name}", goal, f"{wall:.2f}", f"{processor:.2f}", seconds)

    def add(self, what, sides, goal, wall, processor, measured):
        self.rows.append([what, sides, goal, wall, processor, measured, f"{os.getloadavg()[0]:.1f}"])
        print("| " + " | ".join(self.rows[-1]) + " |", file=sys.stderr)
        with open(self.arguments.raw, "a") as file:
            print(json.dumps(self.rows[-1]), file=file)


def step(bench):
    """The complete SVGD step of ViT-B/32 against the loop."""
    options = ["--particles", "5", "--batch-size", "8", *FEW]
    loop = Side("PyTorch loop f32", bench.torch("bench_step_reference.py", "--arch", "vit-b-32", *options))
    ours = {
        precision: Side(f"bella {precision}", bench.bella(*options, "--precisions", precision, "--predictions", "0"))
        for precision in bench.precisions
    }
    bench.turns([loop, *ours.values()])
    goals = {"f32": "≥ 1.1", "bf16": "≥ 1.8"}
    for precision, side in ours.items():
        bench.compare("SVGD step, ViT-B/32, n = 5, batch 8", goals[precision], loop, side)
        parts(bench, "n = 5", side)


def parts(bench, n, side):
    """The share of each part of the step, and how near the frozen products are."""
    row = side.last
    total = float(row["step_seconds"])
    shares = {part: float(row[f"{part}_seconds"]) / total for part in ["input", "gradient", "method", "optimizer"]}
    told = ", ".join(f"{part} {100 * share:.2f} %" for part, share in shares.items())
    told += f"; {100 * float(row['step_matmul_share']):.0f} % of the matrix rate"
    bench.add(f"kernel and repulsion in the step, ViT-B/32, {n}", side.name, "< 2 %", f"{100 * shares['method']:.2f} %", "", told)


def mini(bench):
    """The step of a small CLIP in its best precision."""
    for n, goal in [(5, "≥ 1.4"), (20, "≥ 1.8"), (100, "≥ 3")]:
        options = ["--particles", str(n), "--batch-size", "32", *FEW]
        loop = Side("PyTorch loop f32", bench.torch("bench_step_reference.py", "--arch", "clip-mini", *options))
        ours = bench.bella("--shapes", "clip-mini", "--precisions", "auto", *options, "--predictions", "0")
        sides = [loop, Side("bella auto", ours)]
        bench.turns(sides)
        bench.compare(f"SVGD step, clip-mini, n = {n}, batch 32", goal, *sides)


def prefix(bench):
    """Blocks 6-11 and 10-11 with the output of the ones below cached."""
    for blocks, goal in [("6-11", "≥ 1.4"), ("10-11", "≥ 2.5")]:
        options = ["--blocks", blocks, "--precisions", "auto", "--predictions", "0", *FEW]
        sides = [Side(name, bench.bella(*options, "--feed", feed)) for name, feed in [("without", "images"), ("cached", "prefix")]]
        bench.turns(sides)
        bench.compare(f"SVGD step, ViT-B/32, n = 5, batch 8, blocks {blocks}", goal, *sides)


def update(bench):
    """The SVGD update alone."""
    for n, goal in [(5, "≥ 4"), (20, "≥ 15"), (100, "≥ 40")]:
        few = ["--steps", "1", "--warmup", "0"] if n == 100 else FEW
        loop = bench.torch("bench_step_reference.py", "--update-only", "--particles", str(n), *few)
        # The optimizer's moments make the first step slower, so one untimed step at least.
        ours = bench.bella("--feed", "gradients", "--particles", str(n), *FEW, "--predictions", "0", part="method")
        sides = [Side("loop over pairs and tensors", loop), Side("bella", ours)]
        bench.turns(sides, rounds=1 if n == 100 else None)
        bench.compare(f"SVGD update alone, ViT-B/32, n = {n}", goal, *sides)


def memory(bench):
    """Peak memory of many particles, and against whole models."""

    def peak(*options):
        side = Side(" ".join(options), bench.bella(*options, "--steps", "1", "--warmup", "0", "--predictions", "0"))
        bench.turns([side], rounds=1)
        return float(side.last["train_peak_memory_bytes"]) / 1e9, side

    few, _ = peak("--particles", "3", "--particle-chunk", "3", "--precisions", "auto")
    many, side = peak("--particles", "100", "--particle-chunk", "3", "--precisions", "auto")
    what = "peak memory, ViT-B/32, batch 8, 3 particles at once, n = 100 over n = 3"
    bench.add(what, "bella auto", "≤ 0.4 GB", f"{many - few:.2f} GB", "", f"{few:.2f} and {many:.2f} GB")
    parts(bench, "n = 100", side)
    whole, _ = peak("--subspaces", "full", "--particles", "5")
    ours, _ = peak("--particles", "5")
    what = "peak memory, ViT-B/32, batch 8, n = 5, f32"
    bench.add(what, "low-rank over full SVGD", "≤ 0.4", f"{ours / whole:.2f}", "", f"{ours:.2f} and {whole:.2f} GB")


def prediction(bench):
    """Twenty members on images of 32 pixels."""
    images = "256"
    loop = bench.torch("bench_prediction_reference.py", "--members", "20", "--images", images, "--steps", "2")
    ours = bench.bella(
        *["--shapes", "clip-mini", "--particles", "20", "--precisions", "auto", "--steps", "0"],
        *["--predictions", "2", "--prediction-images", images],
        part="predict",
    )
    sides = [Side("PyTorch loop over merged models, f32", loop), Side("bella auto", ours)]
    bench.turns(sides)
    bench.compare(f"prediction, clip-mini, n = 20, batches of {images} images", "≥ 1.2", *sides)


def ivon(bench):
    """IVON's step against AdamW's."""
    for subspace, goal in [("low-rank", "≤ 1.05"), ("full", "≤ 1.2")]:
        options = ["--subspaces", subspace, "--particles", "1", "--batch-size", "32", "--predictions", "0", *FEW]
        sides = [Side(name, bench.bella(*options, "--methods", method)) for name, method in [("AdamW", "map"), ("IVON", "ivon")]]
        bench.turns(sides)
        bench.compare(f"step, ViT-B/32, n = 1, batch 32, {subspace}", goal, *sides, at_most=True)


def start(bench):
    """Seconds to help, and to the end of a training of one step."""
    times = {"help": [], "first step": []}
    train = ["train", "-c", "configs/quickstart.toml", "--device", "cpu", "--no-eval", "--force", *bench.threads()]
    train += ["-s", "train.epochs=1", "-s", "data.digits.subset.train=16", "-s", "data.digits.validation=0"]
    train += ["-s", "train.select=last-epoch", "-s", "train.batch_size=16"]
    for _ in range(bench.arguments.rounds):
        for what, options in [("help", ["--help"]), ("first step", train)]:
            with tempfile.TemporaryDirectory() as out:
                more = ["--out", out] if what == "first step" else []
                began = time.perf_counter()
                subprocess.run([bench.arguments.bella, *options, *more], check=True, capture_output=True, cwd=HERE.parent)
                times[what].append(time.perf_counter() - began)
    for what, goal in [("help", "< 0.3 s"), ("first step", "< 3 s")]:
        bench.add(f"start-up to {what}", "bella", goal, f"{statistics.median(times[what]):.2f} s", "", "")


def before(bench):
    """Steps, updates and predictions of another build of bella (--before) in turns with this one's."""
    step = ["--predictions", "0", *FEW]
    predict = ["--steps", "0", "--predictions", "2", "--prediction-images", "256"]
    mini = ["--shapes", "clip-mini", "--batch-size", "32"]
    cases = [
        ("SVGD step, ViT-B/32, n = 5, batch 8, f32", ["--particles", "5", "--batch-size", "8", *step], "step"),
        ("the same, bf16", ["--particles", "5", "--batch-size", "8", "--precisions", "bf16", *step], "step"),
        ("SVGD step, clip-mini, n = 5, batch 32, f32", [*mini, "--particles", "5", *step], "step"),
        ("the same, every weight", [*mini, "--particles", "5", "--subspaces", "full", *step], "step"),
        ("IVON's step, clip-mini, n = 1, batch 32", [*mini, "--methods", "ivon", "--particles", "1", *step], "step"),
        ("SVGD update alone, ViT-B/32, n = 5", ["--feed", "gradients", "--particles", "5", *step], "method"),
        ("the same, n = 20", ["--feed", "gradients", "--particles", "20", *step], "method"),
        ("prediction, clip-mini, n = 20, 256 images, f32", ["--shapes", "clip-mini", "--particles", "20", *predict], "predict"),
        ("the same, bf16", ["--shapes", "clip-mini", "--particles", "20", "--precisions", "bf16", *predict], "predict"),
    ]
    for what, options, part in cases:
        if "bf16" in options and "bf16" not in bench.precisions:
            continue
        sides = [
            Side("before", bench.bella(*options, part=part, binary=bench.arguments.before)),
            Side("now", bench.bella(*options, part=part)),
        ]
        bench.turns(sides)
        bench.compare(what, "≤ 1.03", *sides, at_most=True)


def expert(bench):
    """Steps and predictions against a batched PyTorch step as an expert writes it, eager and compiled; the better of both counts."""
    cases = [
        ("vit-b-32", 5, 8, "f32", "≥ 1.35"),
        ("vit-b-32", 5, 8, "bf16", "≥ 1.4"),
        *[("clip-mini", n, 32, precision, "≥ 1.8") for n in (5, 20) for precision in ("f32", "bf16")],
        ("clip-mini", 100, 32, "f32", "≥ 2.2"),
    ]
    for arch, n, batch, precision, goal in (case for case in cases if case[3] in bench.precisions):
        peers(bench, arch, n, precision, goal, ["--batch-size", str(batch), "--steps", "3", "--warmup", "2"], predict=False)
    for precision in bench.precisions:
        peers(bench, "clip-mini", 20, precision, "≥ 2", ["--batch-size", "256", "--steps", "2", "--warmup", "1"], predict=True)


def module(bench):
    """The step of a module (--module), every weight trained, against the loop over copies of it."""
    # TorchScript optimises a module in its first steps.
    sizes = ["--particles", "5", "--batch-size", "32", "--steps", "6", "--warmup", "6"]
    archive, side = bench.arguments.module, bench.arguments.module_size
    loop = bench.torch("bench_step_reference.py", "--module", archive, "--image-size", side, *sizes)
    settings = ["checkpoint.kind=module", f"checkpoint.image_size={side}"]
    own = ["--checkpoint", archive, "--subspaces", "full", "--predictions", "0", *(f"--set={each}" for each in settings)]
    sides = [Side("PyTorch loop f32", loop), Side("bella f32", bench.bella(*own, *sizes))]
    bench.turns(sides)
    bench.compare(f"SVGD step, {Path(archive).stem}, every weight, n = 5, batch 32", "≥ 1.3", *sides)


def peers(bench, arch, n, precision, goal, sizes, predict):
    common = ["--particles", str(n)]
    peer = ["--arch", arch, "--precision", precision, *common, *sizes, *(["--predict"] if predict else [])]
    own = ["--shapes", arch, "--precisions", precision, *common]
    if predict:
        ours = bench.bella(*own, "--steps", "0", "--predictions", "2", "--prediction-images", sizes[1], part="predict")
    else:
        ours = bench.bella(*own, *sizes, "--predictions", "0")
    sides = [
        Side("expert, eager", bench.torch("bench_step_expert.py", *peer)),
        Side("expert, compiled", bench.torch("bench_step_expert.py", *peer, "--compile")),
        Side(f"bella {precision}", ours),
    ]
    bench.turns(sides)
    what = f"{'prediction' if predict else 'SVGD step'}, {arch}, n = {n}, {sizes[0].strip('-')} {sizes[1]}, {precision}"
    better = min(sides[:2], key=lambda side: statistics.median(side.wall))
    bench.compare(what, goal, better, sides[2])
    parts(bench, f"n = {n}", sides[2]) if not predict else None


COMPARISONS = {f.__name__: f for f in [step, mini, prefix, update, memory, prediction, ivon, start, expert, before, module]}
# Those that need a further program or archive, which the option of the same name gives.
GIVEN = ["before", "module"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bella", default="target/release/bella", help="the release binary")
    parser.add_argument("--before", help="another release binary, for the comparison `before`")
    parser.add_argument("--only", default=",".join(name for name in COMPARISONS if name not in GIVEN), help=f"some of {', '.join(COMPARISONS)}")
    parser.add_argument("--module", help="a TorchScript archive of a classifier of images, for the comparison `module`")
    parser.add_argument("--module-size", default="32", help="pixels per side of its images (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--raw", default="target/bench/compare.jsonl")
    arguments = parser.parse_args()
    arguments.bella = os.path.abspath(arguments.bella)
    chosen = arguments.only.split(",")
    for name in GIVEN:
        if (name in chosen) != (getattr(arguments, name) is not None):
            parser.error(f"--only {name} and --{name} FILE go together")
    for name in chosen:
        if name not in COMPARISONS:
            parser.error(f"--only {name}: known are {', '.join(COMPARISONS)}")
    Path(arguments.raw).parent.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    for name in chosen:
        print(COMPARISONS[name].__doc__, file=sys.stderr)
        COMPARISONS[name](bench)
    print("| what | sides | goal | wall | processor | measured | load |\n|---|---|---|--:|--:|---|--:|")
    for row in bench.rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
