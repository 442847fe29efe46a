#!/usr/bin/env bash
# Builds bella, trains three methods with three seeds on the embedded digits, evaluates them on clean and corrupted images, and
# compares them.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# A run is configs/quickstart.toml with one of these merged over it, and a seed.
readonly BASE="configs/quickstart.toml"
readonly METHODS=("configs/methods/single.toml" "configs/methods/bella-ensemble.toml" "configs/methods/bella-svgd.toml")
readonly SEEDS=(1 2 3)
# Single trains every weight, for which 1e-3 is better than the low-rank methods' 5e-3.
readonly SINGLE=(--set optimizer.adamw.lr=1e-3)
readonly CORRUPTIONS="gaussian-noise:5,gaussian-blur:2"
readonly TABLE="results/quickstart.csv"
readonly PICTURE="results/quickstart.svg"
readonly PAGE="results/quickstart.html"

step() { printf '\n== %s\n' "$*"; }
bella() {
    printf '$ target/release/bella %s\n' "$*"
    target/release/bella "$@"
}

step "Building target/release/bella (a few minutes the first time)"
cargo build --release --locked

for method in "${METHODS[@]}"; do
    own=()
    [[ $method == */single.toml ]] && own=("${SINGLE[@]}")
    for seed in "${SEEDS[@]}"; do
        step "Training ${method##*/}, seed $seed"
        bella train --config "$BASE" --config "$method" --set "seed=$seed" ${own[@]+"${own[@]}"}
    done
done

for posterior in results/runs/quickstart/*/posterior.safetensors; do
    step "Evaluating on corrupted digits"
    bella eval "$(dirname "$posterior")" --corrupt "$CORRUPTIONS"
done

step "Comparison"
bella report "$TABLE" --seeds --picture "$PICTURE"
bella report results --html "$PAGE"
printf '\nNumbers: %s\nPicture: %s\nPage:    %s\nRuns:    results/runs/quickstart/\n' \
    "$PWD/$TABLE" "$PWD/$PICTURE" "$PWD/$PAGE"
