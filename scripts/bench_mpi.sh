#!/usr/bin/env bash
# Training in two MPI processes against one, a thread each: alternating, same machine, Bella-SVGD on the embedded digits.
# Needs mpirun and python3.
# Usage: scripts/bench_mpi.sh CHECKPOINT [ROUNDS] [PARTICLES] [BATCH]      (PRECISIONS="f32 bf16", where the processor has bf16; PROCESSES=2)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
checkpoint=${1:?usage: scripts/bench_mpi.sh CHECKPOINT [ROUNDS] [PARTICLES] [BATCH]}
rounds=${2:-5} particles=${3:-8} batch=${4:-32}
processes=${PROCESSES:-2}
native="f32"
grep -qs avx512_bf16 /proc/cpuinfo && native="f32 bf16"
read -ra precisions <<<"${PRECISIONS:-$native}"
bella=${BELLA:-target/release/bella}
[[ -n ${BELLA:-} ]] || cargo build --release --features mpi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/bench.toml" <<TOML
name = "bench-mpi"
seed = 1
[checkpoint]
path = "$checkpoint"
normalize = "clip"
[head.linear]
[data.digits]
subset = { train = $((10 * batch)), test = 10 }
[subspace.low-rank]
rank = 4
[method.svgd]
particles = $particles
gamma = 0.01
[optimizer.adamw]
lr = 1e-3
[train]
epochs = 3
batch_size = $batch
TOML

# The command's run in so many processes, a row of its train.csv an epoch.
train() {
    local count=$1 precision=$2 round=$3 out=$folder/$1-$2-$3 launcher=()
    [[ $count == 1 ]] || launcher=(mpirun --allow-run-as-root --oversubscribe --bind-to core -n "$count")
    "${launcher[@]}" "$bella" train --device cpu --threads 1 --workers 1 --no-eval --out "$out" --config "$folder/bench.toml" \
        --set "train.precision=\"$precision\"" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
    cp "$out"/runs/bench-mpi/*/train.csv "$folder/$precision-$round-$count.csv"
}

for ((round = 1; round <= rounds; round++)); do
    for precision in "${precisions[@]}"; do
        echo "round $round of $rounds, $precision, load $(cut -d' ' -f1 /proc/loadavg)" >&2
        train 1 "$precision" "$round"
        train "$processes" "$precision" "$round"
    done
done
python3 - "$folder" "$rounds" "$processes" "${precisions[@]}" <<'PYTHON'
import csv, statistics, sys
folder, rounds, processes, precisions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
def rates(precision, round, count):
    with open(f"{folder}/{precision}-{round}-{count}.csv") as file:
        # The first epoch warms up.
        return [float(row["images_per_second"]) for row in csv.DictReader(file)][1:]
print(f"{'precision':10} {'processes':>9} {'images/s':>9} {'min':>8} {'max':>8} {'times faster':>13} {'min':>6} {'max':>6}")
for precision in precisions:
    runs = {count: [statistics.mean(rates(precision, round, count)) for round in range(1, rounds + 1)] for count in (1, processes)}
    ratios = [many / one for one, many in zip(runs[1], runs[processes])]
    for count, values in runs.items():
        of = ratios if count > 1 else [1.0]
        print(f"{precision:10} {count:9} {statistics.median(values):9.1f} {min(values):8.1f} {max(values):8.1f}"
              f" {statistics.median(of):13.2f} {min(of):6.2f} {max(of):6.2f}")
PYTHON
