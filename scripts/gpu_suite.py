"""The stages of gpu_suite.sh and their report. Standard library only; PyTorch runs in processes of its own.

Every stage has a share of the time, and what earlier ones left of theirs. A command that does not end within it is stopped, and the
report says so; nothing is left out in silence. On the simulated GPU sizes are small and no time is reported.
"""

import argparse
import csv
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/simulated-gpu"))
import data  # noqa: E402  the images of the cases


# The cells of `bella bench --table2`.
CELLS = 11


@dataclass
class Suite:
    bella: Path
    out: Path
    device: str
    preload: Path | None
    images: Path | None
    seconds: float
    started: float = field(default_factory=time.monotonic)
    failures: list = field(default_factory=list)
    reserved: float = 0.0  # the seconds of the stages to come

    @property
    def simulated(self):
        return self.preload is not None

    def left(self, parts=1):
        """The seconds that this stage has left, for each of `parts` commands."""
        return max(5.0, (self.seconds - self.reserved - (time.monotonic() - self.started)) / parts)

    def run(self, name, command, parts=1, gpu=True):
        """Runs one of the `parts` commands that a stage has left; its output, or None with the reason noted. The log gets
        everything."""
        most = self.left(parts)
        environment = dict(os.environ)
        if gpu and self.simulated:
            environment |= {"LD_PRELOAD": str(self.preload), "SIMULATED_GPU_MEMORY_MB": "3000"}
        began = time.monotonic()
        log = self.out / f"{name}.log"
        print(f"  {name}: {shlex.join(map(str, command))}", flush=True)
        with log.open("a") as file:
            file.write(f"$ {shlex.join(map(str, command))}\n")
            file.flush()
            # A session of its own, so that everything that it started ends with it.
            child = subprocess.Popen(
                list(map(str, command)), stdout=subprocess.PIPE, stderr=file, text=True, env=environment, start_new_session=True
            )
            try:
                output, _ = child.communicate(timeout=most)
                ended = None if child.returncode == 0 else f"exit {child.returncode}"
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 15)
                output, _ = child.communicate()
                ended = f"stopped after {time.monotonic() - began:.0f} s, its share of the time"
            file.write(output)
        if ended:
            self.failures.append(f"{name}: {ended} ({log.name} has its messages)")
        return output if ended is None else None

    def seconds_of(self, value):
        """A time for the report; on the simulated GPU none is claimed."""
        return "—" if self.simulated or value is None else f"{value:.4g}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def gigabytes(cell):
    return f"{float(cell) / 1e9:.2f}" if cell else "—"


def machine(suite):
    """What was measured on."""
    version = suite.run("version", [suite.bella, "--version"], 3, gpu=False) or "—"
    rows = [("bella", version), ("machine", f"{platform.machine()}, {os.cpu_count()} cores"), ("device", suite.device)]
    if suite.simulated:
        rows.append(("GPU", "**simulated**: ordinary memory and the processor's kernels; nothing here is a timing"))
    elif shutil.which("nvidia-smi"):
        said = suite.run("gpu", ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"], 2)
        rows.append(("GPU", (said or "—").strip().replace("\n", "; ")))
    asked = "import torch; print(torch.__version__, torch.cuda.is_available())"
    torch = suite.run("torch", [sys.executable, "-c", asked], gpu=False)
    rows.append(("PyTorch", f"{torch.split()[0]}, CUDA {'usable' if 'True' in torch else 'not usable'}" if torch else "none"))
    return table(["", ""], [(what, str(value).strip()) for what, value in rows])


def cases(suite):
    """Every case of tests/simulated-gpu/cases.py on the CPU and on the GPU, resumed runs among them."""
    found = suite.out / "cases.json"
    found.unlink(missing_ok=True)
    at_a_time = min(8, max(2, (os.cpu_count() or 2) // 2))
    command = [sys.executable, "tests/simulated-gpu/run.py", "--binary", suite.bella, "--device", suite.device]
    command += ["--out", suite.out / "cases", "--json", found, "--jobs", at_a_time, "--seconds", 0.8 * suite.left()]
    if suite.simulated:
        command += ["--preload", suite.preload]
    suite.run("cases", command, gpu=False)
    if not found.exists():
        return "No case ended; see cases.log."
    answer = json.loads(found.read_text())
    rows, left = [], []
    for result in answer["results"]:
        if "NOT RUN" in result["said"]:
            left.append(result["case"])
            continue
        problems = [problem.replace("|", "\\|") for problem in result["problems"]]
        rows.append((result["case"], "**fails**" if problems else "fine", "<br>".join(problems) or result["said"]))
    good = sum(row[1] == "fine" for row in rows)
    text = f"{good} of {len(rows)} cases that ran are fine."
    if left:
        text += f" Not run for lack of time ({len(left)}): {', '.join(left)}."
    return text + "\n\n" + table(["case", "", "what was found"], rows)


def table2(suite):
    """`bella bench` on the cells of Bella's Table 2: peak memory of tensors, beside the published figures."""
    folder = suite.out / "table2"
    shutil.rmtree(folder, ignore_errors=True)
    command = [suite.bella, "bench", "--table2", "--device", suite.device, "--out", folder, "--predictions", "0"]
    if suite.simulated:
        command += ["--shapes", "clip-mini", "--steps", "1", "--warmup", "0", "--batch-size", "1", "--threads", "1"]
    else:
        command += ["--steps", "3", "--batch-size", "32"]
    suite.run("table2", command)
    if not (folder / "bench.csv").exists():
        return "No cell ended; see table2.log."
    with (folder / "bench.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [
        (
            *(row["subspace"], row["method"], row["particles"], row["status"][:60], row["trainable_parameters"]),
            *(gigabytes(row["train_peak_memory_bytes"]), gigabytes(row.get("paper_memory_bytes"))),
            suite.seconds_of(float(row["step_seconds"]) if row["step_seconds"] else None),
        )
        for row in rows
    ]
    note = "ViT-B/32, batch 32 a particle, f32. The paper's batch size is not published."
    if suite.simulated:
        note = "Small CLIP instead of ViT-B/32, batch 1: the published figures are not comparable. The GPU has 3 GB."
    header = ["subspace", "method", "n", "status", "parameters", "peak [GB]", "paper [GB]", "step [s]"]
    return f"{note} {len(rows)} of {CELLS} cells.\n\n" + table(header, shown)


def pytorch(suite):
    """The complete SVGD step of PyTorch, as a loop over models and batched over particles, beside bella's."""
    arch, particles, batch, steps = ("clip-mini", "2", "2", "1") if suite.simulated else ("vit-b-32", "5", "32", "10")
    sizes = ["--particles", particles, "--batch-size", batch, "--steps", steps]
    device = "cpu" if suite.simulated else suite.device
    rows, parts = [], 6
    for precision in ("f32", "bf16"):
        for form in ([], ["--batched"]):
            name = "PyTorch, batched" if form else "PyTorch, loop"
            command = [sys.executable, "scripts/bench_step_reference.py", "--arch", arch, "--device", device]
            command += ["--precision", precision, *sizes, *form]
            said = suite.run("pytorch", command, parts, gpu=False)
            parts -= 1
            row = json.loads(said) if said else {}
            rows.append((name, precision, device, row.get("median_seconds"), gigabytes(row.get("peak_device_bytes"))))
        folder = suite.out / f"step-{precision}"
        shutil.rmtree(folder, ignore_errors=True)
        command = [suite.bella, "bench", "--shapes", arch, "--precisions", precision, "--predictions", "0"]
        command += ["--device", suite.device, "--out", folder, *sizes]
        parts -= 1
        if suite.run("bella-step", command, parts + 1) is None:
            rows.append(("bella", precision, suite.device, None, "—"))
            continue
        with (folder / "bench.csv").open(newline="") as file:
            [row] = csv.DictReader(file)
        rows.append(("bella", precision, suite.device, float(row["step_seconds"]), gigabytes(row["train_peak_memory_bytes"])))
    ours = {precision: seconds for name, precision, _, seconds, _ in rows if name == "bella"}
    shown = []
    for name, precision, where, seconds, peak in rows:
        ratio = None if not seconds or not ours[precision] else seconds / ours[precision]
        shown.append((name, precision, where, suite.seconds_of(seconds) if seconds else "failed", suite.seconds_of(ratio), peak))
    note = " PyTorch ran on the processor, since it does not know the simulated GPU." if suite.simulated else ""
    header = ["program", "precision", "device", "step [s]", "times bella's", "peak [GB]"]
    return f"{arch}, n = {particles}, batch {batch} a particle, rank 4.{note}\n\n" + table(header, shown)


def pipeline(suite):
    """Images a second that are decoded, resized and batched, beside what a training step takes."""
    folder = suite.images
    if folder is None:
        folder = suite.out / "made"
        data.make(folder)
        folder /= "photographs"
    made = "" if suite.images else " Made PNG images of 40 pixels, not photographs: give a folder of those by `--images`."
    rows = []
    for parts, workers in zip((2, 1), sorted({1, os.cpu_count() or 1})):
        command = [suite.bella, "images", *[folder] * (1 if suite.images else 40), "--epochs", "2"]
        command += ["--workers", workers, "--batch-size", "32"]
        said = suite.run("images", command, parts, gpu=False)
        rate = re.search(r"epoch 2: ([\d.]+) images/s", said or "")
        rows.append((f"decoded by {workers} threads", suite.seconds_of(float(rate[1])) if rate else "failed"))
    for precision in ("f32", "bf16"):
        file = suite.out / f"step-{precision}" / "bench.csv"
        if file.exists():
            with file.open(newline="") as opened:
                [row] = csv.DictReader(opened)
            rate = suite.seconds_of(float(row["step_images_per_second"] or 0))
            rows.append((f"taken by the step of n = {row['particles']} in {precision}", rate))
    return "A particle's own images count once each." + made + "\n\n" + table(["", "images per second"], rows)


def jobs(suite):
    """A sweep of four cells, one and two at a time on one GPU."""
    rows, tables = [], []
    for count in (1, 2):
        folder = suite.out / f"jobs-{count}"
        shutil.rmtree(folder, ignore_errors=True)
        command = ["scripts/sweep_rank.sh", "--bella", suite.bella, "--config", "configs/quickstart.toml"]
        command += ["--ranks", "1 2 3 4", "--out", folder, "--device", suite.device, "--jobs", count]
        command += ["--set", f"train.epochs={1 if suite.simulated else 10}", "--set", "data.digits.subset.test=100"]
        command += ["--", "--workers", "1", "--threads", "1"]
        began = time.monotonic()
        done = suite.run("jobs", command, 3 - count) is not None
        with_rows = {}
        for file in folder.glob("*.csv"):
            with file.open(newline="") as opened:
                with_rows |= {(row["run"], row["condition"]): row["nll_pm"] for row in csv.DictReader(opened)}
        tables.append(with_rows)
        rows.append((count, "all cells" if done else "failed", len(with_rows), suite.seconds_of(time.monotonic() - began)))
    same = tables[0].keys() == tables[1].keys() and tables[0]
    if not same:
        suite.failures.append("jobs: the cells of --jobs 2 are not those of --jobs 1")
    said = f"The same {len(tables[0])} rows either way: {'yes' if same else '**no**'}."
    return said + "\n\n" + table(["--jobs", "", "rows", "seconds"], rows)


# With their shares of the time.
STAGES = [
    ("Machine", machine, 0.04),
    ("The GPU against the CPU", cases, 0.4),
    ("Table 2 of the Bella paper", table2, 0.22),
    ("PyTorch beside bella", pytorch, 0.18),
    ("Image pipeline", pipeline, 0.04),
    ("Several runs on one GPU", jobs, 0.12),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bella", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=Path)
    parser.add_argument("--preload", type=Path, help="the simulated GPU")
    parser.add_argument("--minutes", type=float, default=8.0)
    return parser.parse_args()


def main():
    arguments = parse()
    for log in arguments.out.glob("*.log"):
        log.unlink()
    images, seconds = arguments.images and arguments.images.resolve(), 60 * arguments.minutes - 10
    suite = Suite(arguments.bella, arguments.out, arguments.device, arguments.preload, images, seconds)
    report = ["# The GPU suite" + (" on the simulated GPU" if suite.simulated else ""), ""]
    for index, (heading, stage, _) in enumerate(STAGES):
        suite.reserved = suite.seconds * sum(share for _, _, share in STAGES[index + 1 :])
        print(f"== {heading}", flush=True)
        report += [f"## {heading}", "", (stage.__doc__ or "").splitlines()[0], "", stage(suite), ""]
    took = time.monotonic() - suite.started
    report[2:2] = [
        f"Made by `scripts/gpu_suite.sh{' --simulated`' if suite.simulated else f'` in {took:.0f} s'}.",
        "",
        "Failed: " + "; ".join(suite.failures) + "." if suite.failures else "Nothing failed.",
        "",
    ]
    path = arguments.out / "report.md"
    path.write_text("\n".join(report))
    print(f"report: {path} ({took:.0f} s)" + "".join(f"\nfailed: {failure}" for failure in suite.failures))
    sys.exit(bool(suite.failures))


if __name__ == "__main__":
    main()
