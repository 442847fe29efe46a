#!/usr/bin/env bash
# Accuracy over the rank of the updates (Bella, figure 4a; with --config configs/imagenet.toml figure 5).
# Run it again after anything: finished cells are skipped, an interrupted one continues.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

usage() {
    printf 'Usage: scripts/sweep_rank.sh [--ranks LIST] [OPTIONS]\n
  --ranks LIST     (default: "1 2 4 8 16", on configs/camelyon17.toml)\n\n%s\n' "$SWEEP_OPTIONS"
}

take_options "$@"
ranks="1 2 4 8 16"
[[ ${rest[0]:-} != --ranks ]] || { ranks=${rest[1]:-} && rest=("${rest[@]:2}"); }
no_rest
numbers --ranks "$ranks"
((${#configs[@]})) || configs=(--config configs/camelyon17.toml)
for rank in $ranks; do cell "rank-$rank" --set "subspace.low-rank.rank=$rank"; done
run_cells rank
