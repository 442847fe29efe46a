"""Several runs side by side against one after the other, by the way in which their threads wait (--wait of bella).

Every round measures each arrangement once, one after another, so that all of them see the same machine; the numbers are medians
over rounds. "Cost" is the seconds in which all runs of an arrangement do one step each, over those of as many steps of one run
that is alone and waits actively: 1 is what running one after the other takes, less is better.

    python scripts/bench_sharing.py --bella target/release/bella --rounds 5
    python scripts/bench_sharing.py --bella target/release/bella --shape vit-b-32 --particles 1 --steps 3
"""

import argparse
import json
import os
import statistics
import subprocess

# name: a list of (wait, threads) of each run; threads None stands for all cores
ARRANGEMENTS = {
    "1 run, active": [("active", None)],
    "1 run, passive": [("passive", None)],
    "2 runs, active": [("active", None)] * 2,
    "2 runs, passive": [("passive", None)] * 2,
    "2 runs, the second passive": [("active", None), ("passive", None)],
    "2 runs, cores divided": [("active", 0.5)] * 2,
    "4 runs, active": [("active", None)] * 4,
    "4 runs, passive": [("passive", None)] * 4,
    "4 runs, cores divided": [("active", 0.25)] * 4,
}


def start(arguments, wait, share):
    threads = max(1, int(arguments.cores * (share or 1)))
    command = [arguments.bella, "bench", "--alone", "--device", "cpu", "--wait", wait, "--threads", str(threads)]
    command += ["--shapes", arguments.shape, "--particles", str(arguments.particles), "--predictions", "0"]
    command += ["--batch-size", str(arguments.batch_size), "--steps", str(arguments.steps), "--warmup", "1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def seconds(arguments, runs):
    """The mean over the runs of the median seconds of a step."""
    started = [start(arguments, *run) for run in runs]
    answers = [json.loads(process.communicate()[0]) for process in started]
    return statistics.mean(statistics.median(answer["Measured"]["step"]["wall"]) for answer in answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bella", default="target/release/bella")
    parser.add_argument("--shape", default="clip-mini")
    parser.add_argument("--particles", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    measured = {name: [] for name in ARRANGEMENTS}
    for _ in range(arguments.rounds):
        for name, runs in ARRANGEMENTS.items():
            measured[name].append(seconds(arguments, runs))
    alone = measured["1 run, active"]
    print("| runs | seconds per step | cost | in single rounds |\n|---|--:|--:|---|")
    for name, runs in ARRANGEMENTS.items():
        costs = [taken / (len(runs) * one) for taken, one in zip(measured[name], alone)]
        each = ", ".join(f"{cost:.2f}" for cost in costs)
        print(f"| {name} | {statistics.median(measured[name]):.4f} | {statistics.median(costs):.2f} | {each} |")


if __name__ == "__main__":
    main()
