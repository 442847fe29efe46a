#!/usr/bin/env bash
# Trains and evaluates every cell of a published table or figure that bella measures, each by the config that says how.
# Run it again after anything: finished cells are skipped, an interrupted one continues.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

readonly RATES="1e-3 9e-4 5e-4 2.5e-4 8e-4"
readonly METHODS=(bella-svgd bella-ensemble vbl single ensemble svgd)

usage() {
    printf 'Usage: scripts/reproduce_table.sh TABLE [OPTIONS]\n
  TABLE   of Bella (arXiv 2407.20891): 1, 2, 3, 4, 5, 6, 7, 8, 10, fig-2, fig-3, fig-4a, fig-4b, fig-5, fig-8;
          of IVON (arXiv 2402.17641), on ViTs: ivon-1, ivon-2, ivon-3, on GLUE: ivon-4; of IBDR: ibdr (Tables 1 and 2), ibdr-3;
          of BayesAdapt (arXiv 2606.22188): bayesadapt, and small-bayesadapt, its rows on the task of configs/language.toml\n
The checkpoints and data that the configs name must be there; --config FILE merges a file over every cell.\n\n%s\n' \
        "$SWEEP_OPTIONS"
}

# on SET METHOD…: a cell for each method file.
on() {
    local set=$1 method
    shift
    for method in "$@"; do
        cell "${set//\//-}-$method" --config "configs/$set.toml" --config "configs/methods/$method.toml" \
            ${more[@]+"${more[@]}"}
    done
}

# A few steps tell parameters, memory and storage.
costs() {
    local n
    more=(--set train.epochs=1)
    on cifar10 single
    for n in 3 5 20 40; do particles svgd "$n"; done
    for n in 3 5 20 100; do particles bella-svgd "$n"; done
}

# particles METHOD N
particles() {
    local rates=(--set "optimizer.adamw.lr=$(cycled "$RATES" "$2")")
    [[ $1 == bella-svgd ]] || rates=()
    cell "cifar10-$1-n$2" --config configs/cifar10.toml --config "configs/methods/$1.toml" "${more[@]}" \
        --set "method.svgd.particles=$2" ${rates[@]+"${rates[@]}"}
}

layers() {
    local layer
    cell camelyon17-all --config configs/camelyon17.toml
    for layer in fc proj blocks-0-5 blocks-6-11; do
        cell "camelyon17-$layer" --config configs/camelyon17.toml --config "configs/layers/$layer.toml"
    done
}

ranks() {
    local set rank
    for set in camelyon17 imagenet; do
        for rank in 2 4 8 16; do
            cell "$set-rank-$rank" --config "configs/$set.toml" --set "subspace.low-rank.rank=$rank"
        done
        on "$set" svgd
    done
}

# ivon SET ESS METHOD…: IVON, Multi-IVON and the methods beside them.
ivon() {
    local set=ivon/$1 full=ivon-full ess=$2
    [[ $1 != imagenet ]] || full=ivon-full-imagenet
    on "$set" "${@:3}"
    more=(--set "method.ivon.ess=$ess")
    on "$set" "$full"
    more=()
}

# The tasks of GLUE with their numbers of training texts, by AdamW and IVON.
glue() {
    local task key
    for task in mnli:392702 qnli:104743 qqp:363846 rte:2490 sst2:67349 mrpc:3668 cola:8551; do
        key=glue/${task%:*}
        more=(--set optimizer.adamw.lr=2e-5 --set optimizer.adamw.weight_decay=0.1)
        on "$key" single
        more=(--set "method.ivon.ess=${task#*:}" --set method.ivon.lr=0.1 --set train.schedule=cosine)
        on "$key" ivon-full
        more=()
    done
}

# The commonsense sets with their numbers of training questions. IBDR's particles are fewer than the classes.
commonsense() {
    local set task count rates=(--set optimizer.adamw.lr=1e-4 --set optimizer.adamw.weight_decay=0)
    for set in winogrande-s:640 arc-challenge:1119 arc-easy:2251 winogrande-m:2558 openbookqa:4957 boolq:9427; do
        task=commonsense/${set%:*}
        cell "${task//\//-}-mle" --config "configs/$task.toml"
        cell "${task//\//-}-map" --config "configs/$task.toml" --set optimizer.adamw.weight_decay=1e-5
        more=("${rates[@]}")
        on "$task" mc-dropout bella-ensemble vbl blob bella-svgd
        more=(--set "method.bbb.ess=${set#*:}")
        on "$task" bbb
        count=3
        case $task in *winogrande* | *boolq*) count=1 ;; esac
        more=("${rates[@]}" --set "method.ibdr.particles=$count")
        on "$task" ibdr
        more=()
    done
}

# adapters SET COUNT BATCH RATE MEMBERS: the rows of BayesAdapt on the experiment configs/SET.toml, with its number of training texts, the
# size of its batches, the rate of AdamW and the members of the ensemble, and as many SVGD particles. The other settings are those of the
# authors' conf/ and scripts/*/id_sweep.sh.
adapters() {
    local set=$1 count=$2 rates cycle
    rates=(--set "name=bayesadapt" --set "optimizer.adamw={lr=$4,eps=1e-6,weight_decay=0.0}")
    # Steps over which the weights of the divergence double: 100 N^(pi/8) / BATCH, as `BLoBKLScheduler` has it.
    cycle=$(awk -v n="$count" -v batch="$3" 'BEGIN { printf "%d", 100 * exp(log(n) * atan2(0, -1) / 8) / batch }')
    cell "${set//\//-}-mle" --config "configs/$set.toml" --set 'method={map={}}' "${rates[@]}"
    cell "${set//\//-}-map" --config "configs/$set.toml" --set 'method={map={}}' "${rates[@]}" --set optimizer.adamw.weight_decay=0.01
    more=("${rates[@]}")
    on "$set" mc-dropout
    more=("${rates[@]}" --set "method.ensemble.particles=$5")
    on "$set" bella-ensemble
    more=("${rates[@]}" --set "method.svgd.particles=$5")
    on "$set" bella-svgd
    more=("${rates[@]}" --set "method.blob.cycle=$cycle" --set method.blob.kl_lr=0.01 --set "method.blob.std_lr=$4")
    on "$set" blob
    more=("${rates[@]}" --set "method.scalabl.cycle=$cycle" --set "method.scalabl.std_lr=$4")
    on "$set" scalabl
    # They search from 0.001 on in 5 halvings, and keep a spread that exceeds the tolerance where none does not.
    more=("${rates[@]}" --set method.tfb.tolerance=0.003 --set method.tfb.smallest=1e-6 --set "method.tfb.anchors=$count")
    on "$set" tfb
    # They draw 100,000 times from the Gaussian of the logits.
    more=("${rates[@]}" --set method.laplace.samples=1000)
    on "$set" vbl
    more=()
}

bayesadapt() {
    local set
    for set in winogrande-xs:160 winogrande-s:640 winogrande-m:2558 winogrande-l:10234 arc-easy:2251 arc-challenge:1119 openbookqa:4957; do
        adapters "bayesadapt/${set%:*}" "${set#*:}" 4 1e-4 10
    done
}

vtab() {
    local task name
    for task in configs/vtab/*.toml; do
        name=${task##*/}
        name=${name%.toml}
        on "vtab/$name" single lora bella-ensemble bella-svgd bayestune
        # IBDR takes fewer particles than classes: two classes are too few, four want three particles.
        case $name in
        camelyon) continue ;;
        kitti) more=(--set method.ibdr.particles=3) ;;
        esac
        on "vtab/$name" ibdr
        more=()
    done
}

table=${1:-}
case $table in
--help | -h) usage && exit 0 ;;
"" | -*) usage >&2 && exit 2 ;;
8) exec scripts/sweep_gamma.sh "${@:2}" ;;
fig-4a) exec scripts/sweep_rank.sh "${@:2}" ;;
fig-4b) exec scripts/sweep_particles.sh "${@:2}" ;;
esac
take_options "${@:2}"
no_rest
more=()
case $table in
1) for set in cifar10 cifar100 camelyon17 domainnet imagenet; do on "$set" "${METHODS[@]}"; done ;;
2) costs ;;
3) on domainnet "${METHODS[@]}" ;;
4) on cifar10 "${METHODS[@]}" && evaluate eval --data cifar10-c=data/CIFAR-10-C ;;
5 | 10) for kind in single ensemble svgd; do cell "vqa-v2-$kind" --config "configs/vqa/vqa-v2-$kind.toml"; done ;;
6) layers ;;
7) for set in cifar10 cifar100; do on "$set" bella-ensemble ensemble bella-svgd svgd; done && evaluate soup ;;
fig-2) on camelyon17 single svgd bella-svgd && on cifar10 single svgd bella-svgd ;;
fig-3)
    # Linearised logits cannot be attacked: of VBL drawn weights are.
    on cifar10 vbl && evaluate eval --attack fgsm --predictive sampled
    on cifar10 bella-svgd bella-ensemble single ensemble svgd && evaluate eval --attack fgsm
    ;;
fig-5) ranks ;;
fig-8) on cifar10 "${METHODS[@]}" && evaluate eval --data stl10=data ;;
ivon-1)
    for set in imagenet:1281167 tiny-imagenet:100000 cifar100:50000; do ivon "${set%:*}" "${set#*:}" single single-sgd; done
    ;;
ivon-2)
    ivon cifar10 50000 single single-sgd ensemble
    cell ivon-cifar10-multi-ivon --config configs/ivon/cifar10.toml --config configs/methods/ivon-full.toml \
        --set method.ivon.particles=5
    ;;
ivon-3) ivon cifar10 50000 single-sgd && evaluate eval --ood svhn=data/svhn --ood flowers102=data/flowers102 ;;
ivon-4) glue ;;
ibdr) vtab ;;
ibdr-3) commonsense ;;
bayesadapt) bayesadapt ;;
small-bayesadapt) adapters language 400 16 2e-3 5 ;;
*) refuse "$table: unknown table; known: 1, 2, 3, 4, 5, 6, 7, 8, 10, fig-2, fig-3, fig-4a, fig-4b, fig-5, fig-8, ivon-1, ivon-2, ivon-3, ivon-4, ibdr, ibdr-3, bayesadapt, small-bayesadapt" ;;
esac
run_cells "table-$table"
