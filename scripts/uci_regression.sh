#!/bin/bash
# Trains ensembles and MC-dropout on the regression sets of UCI, split by split, as in results/regression.md.
#
#   scripts/uci_regression.sh UCI_Datasets OUT SET...     # SET: bostonHousing, concrete, yacht, energy, …
#
# BELLA names the program (bella by default), SPLITS the splits ("0 1 2 3 4"), PYTHON an interpreter with torch. scripts/uci_table.py prints
# what came of it.
set -euo pipefail
(($# >= 3)) || { echo "usage: scripts/uci_regression.sh UCI_Datasets OUT SET…" >&2 && exit 2; }
root=$1 out=$2
shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
bella=${BELLA:-bella} python=${PYTHON:-python3}

# The precision tau of the noise by set: that which the grid search of yaringal/DropoutUncertaintyExps chose most often.
deviation() {
  case $1 in
    bostonHousing) echo 2.236 ;; # tau = 0.2
    concrete) echo 4.472 ;;      # tau = 0.05
    yacht | energy) echo 1.155 ;; # tau = 0.75
    *) echo "no noise is known for $1" >&2; return 1 ;;
  esac
}

for set in "$@"; do
  # Known before anything is trained; a failure within the arguments of a command would be passed over.
  sigma=$(deviation "$set")
  inputs=$(wc -w <"$root/$set/data/index_features.txt")
  network=$out/mlp-$inputs.pt
  mkdir -p "$out"
  [[ -e $network ]] || "$python" "$here/scripts/make_mlp.py" "$network" --inputs "$inputs" --hidden 50
  for split in ${SPLITS:-0 1 2 3 4}; do
    common=(--config "$here/configs/regression/uci.toml" --out "$out" --device cpu --threads 1
      --set name="uci-$set" --set checkpoint.path="$network" --set checkpoint.inputs="$inputs"
      --set data.uci.root="$root" --set data.uci.name="$set" --set data.uci.split="$split")
    # The ensemble of the config: five networks as in Lakshminarayanan et al. 2017, without adversarial examples and trained for longer.
    "$bella" train "${common[@]}"
    # Gal & Ghahramani 2016 with a known noise. The authors' repository trains for 4000 epochs with a rate of 0.001.
    "$bella" train "${common[@]}" --set 'method={mc-dropout={rate=0.01,samples=100}}' \
      --set head.gaussian.sigma="$sigma" --set optimizer.adamw.lr=0.005 --set train.epochs=800 --set train.batch_size=128
  done
done
