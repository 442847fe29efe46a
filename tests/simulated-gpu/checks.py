"""Checks other than the comparison with the CPU. Each gives its problems; an empty list is a success."""

import csv
import json
import re
import subprocess
import time


def waits(machine, place, config):
    """Twice as many steps between the same looks must not make the host wait more often; one more look must."""
    if machine.real:
        return None
    counted = []
    for batch, steps in [(24, 8), (12, 16), (8, 24)]:
        folder = place / f"batch-{batch}" / "cuda"
        folder.mkdir(parents=True)
        sets = [f"train.batch_size={batch}", "train.warmup_steps=0"]
        done = machine.run(["train", "--no-eval", "-c", config, *[word for text in sets for word in ("-s", text)]], "cuda", folder)
        if problem := done.problem():
            return [problem]
        rows = [json.loads(file.read_text()) for file in folder.rglob("run.json")]
        if [row["steps"] for row in rows] != [steps]:
            return [f"batch size {batch}: {[row['steps'] for row in rows]} steps instead of {steps}"]
        counted.append(done.waits)
    eight, sixteen, with_a_look = counted
    found = []
    if eight != sixteen:
        found.append(f"8 steps made the host wait {eight}, 16 steps {sixteen}: a step waits")
    if not sixteen or sum(with_a_look.values()) <= sum(sixteen.values()):
        found.append(f"a second look at the losses is not counted: {sixteen} and {with_a_look}")
    return found


def peaks(machine, place, _):
    """The peaks of `bella bench` are those of the step and of the prediction, not of what else the process does."""
    rows = list(csv.DictReader((place / "cuda" / "bench.csv").open()))
    found = []
    for row in rows:
        train, predict = (float(row[f"{what}_peak_memory_bytes"] or 0) for what in ("train", "predict"))
        product = 2 * 8192**2 * 4  # what the matrix products hold at least, which time the machine
        if not 0 < train < product:
            found.append(f"the training peak is {train / 1e6:.0f} MB: that of the matrix products?")
        if not 0 < predict < 0.8 * train:
            found.append(f"the prediction peak is {predict / 1e6:.0f} MB, that of training {train / 1e6:.0f} MB")
    return found or ([] if rows else ["bench.csv has no row"])


def results(machine, place, _):
    """`train_peak_memory_bytes` is there and is what the device gave at most."""
    folder = place / "cuda"
    [run] = [json.loads(file.read_text()) for file in folder.rglob("run.json")]
    cells = [row["train_peak_memory_bytes"] for file in folder.glob("*.csv") for row in csv.DictReader(file.open())]
    peak, theta = run["peak_memory_bytes"] or 0, 4 * run["trainable_parameters"]
    found = [] if peak > 3 * theta else [f"the peak is {peak} bytes, theta with its moments takes {3 * theta}"]
    if not cells or any(float(cell or 0) != peak for cell in cells):
        found.append(f"the table says {cells}, the run {peak}")
    counted = re.findall(r"kernels, peak ([\d.]+) MiB", (place / "cuda.log").read_text())
    if not machine.real and not peak <= (float(counted[0]) + 0.1) * 2**20:
        found.append(f"the run says {peak} bytes, the device {counted[0]} MiB")
    return found


def cut(machine, place, config):
    """What training leaves in libtorch's cache is free for the final evaluation: it is cut as in a fresh process."""
    if machine.real:
        return None
    folder = place / "little" / "cuda"
    folder.mkdir(parents=True)
    little = {"SIMULATED_GPU_MEMORY_MB": 32}
    train = machine.run(["train", "-v", "-c", config], "cuda", folder, **little)
    runs = [str(file.parent) for file in folder.rglob("posterior.safetensors")]
    again = machine.run(["eval", "-v", *runs], "cuda", folder, **little)
    if problem := train.problem() or again.problem():
        return [problem]
    cuts = [re.findall(r"prediction: (\d+) (?:of \d+ )?members x (\d+)", done.messages)[-1:] for done in (train, again)]
    step = re.search(r"training step: \d+ of \d+ members", train.messages)
    found = [] if step else ["the training step was not cut: it does not fill the memory"]
    return found + ([] if cuts[0] and cuts[0] == cuts[1] else [f"members and images at once: {cuts[0]}, in a fresh process {cuts[1]}"])


def resume(machine, place, config):
    """A run that was killed, by signal 9 or 15, goes on to the same posterior."""
    epochs = 40 if machine.real else 4
    train = ["train", "-c", config, "-s", f"train.epochs={epochs}", "-s", "train.save_minutes=1e-9", "--no-eval"]
    posteriors = []
    for ending in ("whole", "KILL", "TERM"):
        folder = place / ending / "cuda"
        folder.mkdir(parents=True)
        if ending != "whole" and (problem := killed(machine, train, folder, ending)):
            return [problem]
        done = machine.run(train, "cuda", folder)
        if problem := done.problem():
            return [f"{ending}: {problem}"]
        posteriors += [file.read_bytes() for file in folder.rglob("posterior.safetensors")]
    return [] if posteriors == posteriors[:1] * 3 else ["the posterior is not that of the uninterrupted run"]


def killed(machine, train, folder, signal):
    """Starts a run and kills it after its first checkpoint; what went wrong, if anything did."""
    command = machine.arguments(train, "cuda", folder)
    child = subprocess.Popen(
        command, env=machine.environment("cuda", folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not list(folder.rglob("resume.safetensors")) and child.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    if child.poll() is not None:
        return f"{signal}: the run ended before it was killed"
    child.kill() if signal == "KILL" else child.terminate()
    child.wait()
    return None


CHECKS = {check.__name__: check for check in (waits, peaks, results, cut, resume)}
# These train by themselves.
ALONE = {"waits", "cut", "resume"}
