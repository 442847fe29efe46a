#!/usr/bin/env bash
# One training step of SVGD with each drive on one thread: seconds of processor time (drives take turns within one process)
# and peak memory (a process each).
# Usage: scripts/bench_drives.sh CHECKPOINT [BATCH] [STEPS] [PARTICLES...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
checkpoint=$1 batch=${2:-32} steps=${3:-9}
particles=("${@:4}")
[[ ${#particles[@]} -gt 0 ]] || particles=(2 5 10 20 50)
python=${PYTHON:-python3}
subspace=${SUBSPACE:-low-rank.rank=4}
cargo bench --bench step --no-run
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
run() {
    cargo bench -q --bench step -- --checkpoint "$checkpoint" --batch-size "$batch" --threads 1 \
        --subspace "$subspace" "$@" 2>/dev/null >>"$lines"
}
for n in "${particles[@]}"; do
    echo "n = $n" >&2
    run --particles "$n" --drives own,shared,weight --steps "$steps" --warmup 2
    for drive in own shared weight; do
        run --particles "$n" --drives "$drive" --steps 2 --warmup 0
    done
done
"$python" - "$lines" <<'PYTHON'
import json, statistics, sys

DRIVES = ["own", "shared", "weight"]
seconds, memory = {}, {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    key = (row["particles"], row["drive"])
    # The first line of a key is of all drives together, the second of the drive alone.
    if key in seconds:
        memory[key] = row["peak_memory_bytes"]
    else:
        seconds[key] = row["processor_seconds"]
print("| n | " + " | ".join(f"{d} s" for d in DRIVES) + " | shared / own | weight / own | " + " | ".join(f"{d} MiB" for d in DRIVES) + " |")
print("|--:" * 9 + "|")
for n in sorted({n for n, _ in seconds}):
    median = {d: statistics.median(seconds[n, d]) for d in DRIVES}
    # Steps that followed each other: the median of their ratios.
    ratio = {d: statistics.median(a / b for a, b in zip(seconds[n, d], seconds[n, "own"])) for d in DRIVES}
    cells = [f"{median[d]:.3f}" for d in DRIVES] + [f"{ratio[d]:.3f}" for d in DRIVES[1:]]
    print(f"| {n} | " + " | ".join(cells + [f"{memory[n, d] / 2**20:.0f}" for d in DRIVES]) + " |")
PYTHON
