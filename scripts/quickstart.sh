#!/usr/bin/env bash
# Builds bella, trains three methods on the embedded digits, evaluates them on clean and corrupted images, and compares them.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# A run is configs/quickstart.toml with, merged over it, one of these (none for the first: Bella-SVGD).
readonly BASE="configs/quickstart.toml"
readonly METHODS=("" "configs/methods/bella-ensemble.toml" "configs/methods/single.toml")
readonly CORRUPTIONS=("gaussian-noise:3")
readonly TABLE="results/quickstart.csv"
readonly PICTURE="results/quickstart.svg"

step() { printf '\n== %s\n' "$*"; }
bella() {
    printf '$ target/release/bella %s\n' "$*"
    target/release/bella "$@"
}

step "Building target/release/bella (a few minutes the first time)"
cargo build --release --locked

for method in "${METHODS[@]}"; do
    configs=(--config "$BASE")
    [[ -z $method ]] || configs+=(--config "$method")
    step "Training ${method:-$BASE}"
    bella train "${configs[@]}"
    for corruption in "${CORRUPTIONS[@]}"; do
        bella eval "${configs[@]}" --corrupt "$corruption"
    done
done

step "Comparison"
bella report "$TABLE"
printf '\nNumbers: %s\nPicture: %s\nRuns:    results/runs/quickstart/\n' "$PWD/$TABLE" "$PWD/$PICTURE"
