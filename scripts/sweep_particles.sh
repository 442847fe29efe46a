#!/usr/bin/env bash
# Accuracy over the number of particles (Bella, figure 4b). A config's learning rates are cycled over the particles.
# Run it again after anything: finished cells are skipped, an interrupted one continues.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

usage() {
    printf 'Usage: scripts/sweep_particles.sh [--particles LIST] [--method KEY] [OPTIONS]\n
  --particles LIST (default: "1 3 5 10 20", of an ensemble without 1; on configs/cifar10.toml)
  --method KEY     method and optimizer that take them: svgd, ensemble (default: svgd)
  --rates LIST     learning rates, cycled (default: the five of the authors'"'"' release; "" leaves the config'"'"'s)\n\n%s\n' \
        "$SWEEP_OPTIONS"
}

take_options "$@"
unset particles
method=svgd rates="1e-3 9e-4 5e-4 2.5e-4 8e-4"
while ((${#rest[@]} > 1)); do
    case ${rest[0]} in
    --particles) particles=${rest[1]} ;;
    --method) method=${rest[1]} ;;
    --rates) rates=${rest[1]} ;;
    *) break ;;
    esac
    rest=("${rest[@]:2}")
done
no_rest
[[ $method != map ]] || refuse "--method map: is one network; --method ensemble trains several"
# One network is no ensemble.
[[ -n ${particles+given} ]] || { [[ $method == ensemble ]] && particles="3 5 10 20" || particles="1 3 5 10 20"; }
numbers --particles "$particles"
[[ -z $rates ]] || numbers --rates "$rates"
((${#configs[@]})) || configs=(--config configs/cifar10.toml)
for n in $particles; do
    lr=()
    [[ -z $rates ]] || lr=(--set "optimizer.adamw.lr=$(cycled "$rates" "$n")")
    cell "particles-$n" --set "method.$method.particles=$n" ${lr[@]+"${lr[@]}"}
done
run_cells particles
