#!/usr/bin/env python3
"""Runs the cases of cases.py on the CPU and on a GPU, simulated or real, and compares every result. See run.sh.

A case passes where all commands of both devices end well and results agree to rounding. Prints one line per case; logs, and what
failed cases left, are in the folder of --out.
"""

import argparse
import json
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cases
import checks
import data
from compare import compare
from device import Machine


LATE = "NOT RUN for lack of time"


def commands(spec, place, folder, device, made):
    """The commands of a case with its words filled in; FILE is a command's own file, MADE0 that of the first one."""
    runs = sorted(str(file.parent) for file in folder.rglob("posterior.safetensors"))
    for index, command in enumerate(spec["commands"]):
        words = {"RUN": runs[:1], "ALL": runs, "CONFIG": [str(place / "config.toml")]}
        filled = [part for word in command for part in words.get(word, [str(word).replace("DATA", str(made)).replace("FILE", str(folder / f"file{index}")).replace("MADE", str(folder / "file"))])]
        # A processor without bf16 instructions refuses it: bf16 on the GPU is held against f32 on the CPU, and so is f16.
        yield ["f32" if device == "cpu" and part in ("bf16", "f16") else part for part in filled]


def on_device(machine, spec, place, device, made):
    """Trains a case on a device and runs its commands; the problems."""
    folder = place / device
    folder.mkdir(parents=True)
    text = spec["config"].replace("DATA", str(made))
    if device == "cpu" and spec.get("rough"):
        text = re.sub(r'"(bf16|f16|auto)"', '"f32"', text)
    (place / "config.toml").write_text(text)
    if spec.get("train", True):
        for seed in range(1, 1 + spec.get("seeds", 1)):
            done = machine.run(["train", "-c", place / "config.toml", "-s", f"seed={seed}", "-v"], device, folder)
            if problem := done.problem():
                return [f"{device}: {problem}"]
    found = [machine.run(command, device, folder).problem() for command in commands(spec, place, folder, device, made)]
    return [f"{device}: {problem}" for problem in found if problem]


def compared(machine, spec, place):
    """Differences between the devices that are more than rounding, and the largest."""
    rough = spec.get("rough", False)
    tolerance = spec.get("tolerance", 1e-3)
    if machine.real:  # other kernels round otherwise, and other generators draw other numbers
        rough, tolerance = rough or spec.get("noise", False), max(20 * tolerance, 0.3 if spec.get("noise") else 0.0)
    found, worst = compare(place / "cpu", place / "cuda", rough)
    if worst[0] > tolerance:
        found.append(f"largest difference {worst[0]:.1e} in {worst[1]}")
    return found, worst[0]


def run(machine, out, made, name):
    """One case: its line, its problems, its seconds."""
    spec, start, place = cases.CASES[name], time.time(), out / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    check = next((word for word in checks.CHECKS if word in spec), None)
    problems, said = [], ""
    if check not in checks.ALONE:
        for device in ("cpu", "cuda") if spec.get("compare", True) else ("cuda",):
            problems += on_device(machine, spec, place, device, made)
    if spec.get("compare", True) and check not in checks.ALONE and not problems:
        problems, largest = compared(machine, spec, place)
        said = f"largest difference {largest:.1e}"
    if check and not problems:
        (place / "config.toml").write_text(spec["config"].replace("DATA", str(made)))
        answer = checks.CHECKS[check](machine, place, place / "config.toml")
        said = "not on a real GPU" if answer is None else (checks.CHECKS[check].__doc__ or "").splitlines()[0]
        problems += answer or []
    if not problems:
        shutil.rmtree(place)
    return {"case": name, "problems": problems, "said": said, "seconds": time.time() - start}


def chosen(arguments):
    if arguments.cases:
        return [name for name in cases.CASES if any(re.fullmatch(pattern, name) for pattern in arguments.cases)]
    # Those of the small set come first, since the time may end before the others.
    first = [name for name, spec in cases.CASES.items() if spec.get("ci")]
    return first + [name for name in cases.CASES if arguments.set == "all" and name not in first]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help="patterns of names (default: those of --set)")
    parser.add_argument("--set", choices=["ci", "all"], default="all")
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--preload", type=Path, help="the simulated GPU (default: a real one)")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--seconds", type=float, help="start no further case after this time; the report says which are left")
    parser.add_argument("--json", type=Path, help="also write the results here")
    return parser.parse_args()


def main():
    arguments = parse()
    out, started = arguments.out.resolve(), time.time()
    names = chosen(arguments)
    if not names:
        sys.exit(f"no case is called {' or '.join(arguments.cases)}; known: {', '.join(cases.CASES)}")
    machine = Machine(arguments.binary.resolve(), arguments.preload and arguments.preload.resolve(), gpu=arguments.device)
    data.make(out / "data")

    def work(name):
        if arguments.seconds and time.time() - started > arguments.seconds:
            return {"case": name, "problems": [], "said": LATE, "seconds": 0.0}
        return run(machine, out, out / "data", name)

    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(work, names):
            results.append(result)
            print(f"{'FAIL' if result['problems'] else 'ok  '} {result['case']:22} {result['seconds']:5.1f} s  {result['said']}", flush=True)
            for problem in result["problems"]:
                print(f"     {problem}", flush=True)
            if arguments.json:  # after every case, for whoever must stop this
                rest = [{"case": name, "problems": [], "said": LATE, "seconds": 0.0} for name in names[len(results) :]]
                arguments.json.write_text(json.dumps({"real": machine.real, "results": results + rest}, indent=1))
    failed = sum(bool(result["problems"]) for result in results)
    left = sum("NOT RUN" in result["said"] for result in results)
    print(f"{len(results) - failed - left} cases agree, {failed} failed, {left} not run, {time.time() - started:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
