#!/usr/bin/env bash
# Records what bella computes on its embedded data: about twenty small runs of all kinds of methods and subspaces, with evaluations, merges and
# exports. Two recordings, one before and one after a change, are compared by scripts/compare_runs.py:
#   scripts/record_runs.sh OLD-BELLA before && scripts/record_runs.sh NEW-BELLA after && python3 scripts/compare_runs.py before after
# Training is on one thread, so that sums have one order.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
(($# == 2)) || { echo "usage: scripts/record_runs.sh BELLA FOLDER" >&2 && exit 2; }
bella=$(realpath "$1") out=$(realpath -m "$2") failed=0
mkdir -p "$out"

# step NAME COMMAND…: runs it, and keeps what it prints.
step() {
    local name=$1 rc=0
    shift
    "$@" >"$out/$name.stdout" 2>"$out/$name.stderr" || rc=$?
    ((rc == 0)) || { echo "$name: exit $rc: $(tail -n 1 "$out/$name.stderr")" >&2 && failed=1; }
}

base=(--config configs/quickstart.toml --set train.epochs=3 --set "data.digits.subset={train=150,test=200}" --threads 1 --device cpu --out "$out/results")

# trained NAME SET…: one run of the experiment NAME.
trained() {
    local name=$1 sets=()
    shift
    for set in "$@"; do sets+=(--set "$set"); done
    step "train-$name" "$bella" train "${base[@]}" --set "name=\"$name\"" ${sets[@]+"${sets[@]}"} ${more[@]+"${more[@]}"}
}

# of NAME: the folder of its run.
of() { echo "$out/results/runs/$1"/*/; }

more=()
trained map 'method={map={}}'
trained svgd
trained svgd-weight 'method={svgd={particles=4,drive="weight",gamma=0.1}}' 'train.select="best-epoch"'
trained svgd-full 'method={svgd={particles=3,gamma=0.01}}' 'subspace={full={}}'
trained sa-svgd 'method={svgd={particles=3,gamma=0.01,sharpness=0.05}}'
trained chunked 'train.particle_chunk=2' train.accumulate=2
trained recomputed train.recompute=true 'train.prefix_cache="off"'
trained cached 'subspace.low-rank.blocks="1"' 'train.prefix_cache="disk"'
trained ensemble-last 'method={ensemble={particles=3}}' 'subspace={last-layer={}}' 'optimizer={sgd={lr=0.05,momentum=0.9}}'
trained ivon 'method={ivon={lr=0.02,ess=150,hess_init=0.1,samples=4}}' 'optimizer={none={}}'
trained ivon-full 'method={ivon={lr=0.02,ess=150,hess_init=0.1,samples=4}}' 'subspace={full={}}' 'optimizer={none={}}'
trained vogn 'method={vogn={lr=0.01,ess=1e4,hess_init=0.1,damping=0.1,samples=4}}' 'optimizer={none={}}'
trained bbb 'method={bbb={lr=4e-3,ess=120,samples=4,std_init=0.005}}' 'optimizer={none={}}'
trained blob 'method={blob={cycle=10,samples=4}}'
trained ibdr 'method={ibdr={particles=3,std=0.01}}'
trained vbll 'method={vbll={ess=120,samples=4}}' 'head={linear={}}'
trained sam 'method={sam={rho=0.05}}'
trained sgld 'method={sgld={lr=0.1,ess=120,samples=4,every=2,start=2}}' 'optimizer={none={}}'
trained swag 'method={swag={start=4,every=2,columns=3,samples=4}}'
trained mc-dropout 'method={mc-dropout={rate=0.1,samples=4}}'
trained bayestune 'method={bayestune={search_steps=4,share=0.2,lr=0.01,ess=1e12}}'
trained adahessian 'method={map={}}' 'optimizer={adahessian={lr=0.01}}' 'train.precision="f32"'
trained laplace 'method={laplace={}}'
trained tfb 'method={tfb={samples=4}}'

# A run that pauses and goes on.
more=(--until-epoch 1)
trained resumed
more=()
trained resumed

# What follows training.
step eval-fgsm "$bella" eval "$(of svgd)" --threads 1 --attack fgsm --epsilon 0,0.01,0.05
step eval-pgd "$bella" eval "$(of ivon)" --threads 1 --attack pgd --epsilon 0.02
step eval-corrupt "$bella" eval "$(of svgd)" --threads 1 --corrupt gaussian-noise:3
step eval-calibrate "$bella" eval "$(of svgd)" --threads 1 --calibrate --conformal 0.1
step soup "$bella" soup "$(of svgd)" --threads 1
step merge "$bella" merge --by mean "$(of map)" "$(of sam)" --threads 1
step similarity "$bella" similarity "$(of svgd)" --threads 1
mkdir -p "$out/exports"
for form in peft weights torchscript onnx; do
    step "export-$form" "$bella" export "$(of svgd)" --to "$form" -o "$out/exports/$form" --threads 1
done
step report "$bella" report "$out/results" --table results --format csv
step keys "$bella" list keys
step list "$bella" list
exit "$failed"
