#!/usr/bin/env bash
# One training step of bella against the plain PyTorch loop over deep copies, on ViT-B/32 shapes: alternating, same machine.
# Needs a Python with torch (PYTHON=python3), and scripts/make_random_vit.py's archive, which it makes when it is missing.
# Usage: scripts/bench_step.sh [ROUNDS] [PARTICLES] [BATCH]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-3} particles=${2:-5} batch=${3:-8}
python=${PYTHON:-python3}
threads=${THREADS:-$(nproc)}
archive=target/bench/vit-b-32.pt
mkdir -p target/bench
[[ -s $archive ]] || "$python" scripts/make_random_vit.py --arch vit-b-32 --out "$archive"
cargo bench --bench step --no-run
lines=target/bench/step.jsonl
: >"$lines"
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds" >&2
    "$python" scripts/bench_step_reference.py --arch vit-b-32 --particles "$particles" --batch-size "$batch" \
        --threads "$threads" --steps 5 --warmup 1 >>"$lines"
    for precision in f32 bf16; do
        cargo bench -q --bench step -- --checkpoint "$archive" --particles "$particles" --batch-size "$batch" \
            --threads "$threads" --precision "$precision" --steps 5 --warmup 1 2>/dev/null >>"$lines"
    done
done
"$python" - "$lines" <<'PYTHON'
import json, statistics, sys
samples = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    name = "bella " + row["precision"] if row.get("program") == "bella" else "PyTorch loop f32"
    samples.setdefault(name, []).extend(row["seconds"])
base = statistics.median(samples["PyTorch loop f32"])
print(f"{'program':18} {'median s/step':>14} {'min':>8} {'max':>8} {'times faster':>13} {'samples':>8}")
for name, seconds in samples.items():
    median = statistics.median(seconds)
    print(f"{name:18} {median:14.3f} {min(seconds):8.3f} {max(seconds):8.3f} {base / median:13.2f} {len(seconds):8}")
PYTHON
