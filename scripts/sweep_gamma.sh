#!/usr/bin/env bash
# Robustness over the weight of the repulsion (Bella, Table 8): trained on CIFAR-10 at rank 16, attacked by FGSM.
# Run it again after anything: finished cells are skipped, an interrupted one continues.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

usage() {
    printf 'Usage: scripts/sweep_gamma.sh [--gammas LIST] [--epsilon LIST] [OPTIONS]\n
  --gammas LIST    (default: "0.01 0.025 0.05 0.1 0.2 0.3", on configs/cifar10.toml at rank 16)
  --epsilon LIST   budgets of the attack (default: 0.001,0.005,0.01,0.03)\n\n%s\n' "$SWEEP_OPTIONS"
}

take_options "$@"
gammas="0.01 0.025 0.05 0.1 0.2 0.3" epsilon="0.001,0.005,0.01,0.03"
while ((${#rest[@]} > 1)); do
    case ${rest[0]} in
    --gammas) gammas=${rest[1]} ;;
    --epsilon) epsilon=${rest[1]} ;;
    *) break ;;
    esac
    rest=("${rest[@]:2}")
done
no_rest
numbers --gammas "$gammas"
((${#configs[@]})) || configs=(--config configs/cifar10.toml)
for gamma in $gammas; do
    cell "gamma-$gamma" --set subspace.low-rank.rank=16 --set "method.svgd.gamma=$gamma"
done
evaluate eval --attack fgsm --epsilon "$epsilon"
run_cells gamma
