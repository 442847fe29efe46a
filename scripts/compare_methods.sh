#!/usr/bin/env bash
# Tables of every method on CIFAR-10 with a CLIP archive: settings by `bella sweep` on held-out images, with as many trials
# for each method; then every seed is trained for equally many epochs, evaluated, attacked, shown corrupted images and CIFAR-100; and
# with --equal-time every seed is trained again for as many steps as the processor time of others pays for.
# Methods come one after the other, and the tables are written after each. Run it again after anything: finished trials, cells and
# evaluations are skipped, interrupted ones continue.
# Keys and values hold commas and dollars that are not bash's, steps are rounded on purpose, and a trap calls the last function.
# shellcheck disable=SC2016,SC2017,SC2054,SC2317
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

usage() {
    printf 'Usage: scripts/compare_methods.sh --checkpoint FILE --head FILE [OPTIONS]\n\n%s
  --methods LIST     (default: all that `bella list` has, but imported)
  --attacked N       test images that are attacked (default: 1000)
  --foreign N        images of CIFAR-100 (default: 10000)
  --epsilons LIST    budgets of FGSM in pixel units (default: "0.002 0.005")
  --shifts LIST      corruptions with severity (default: "gaussian-noise:3 gaussian-blur:3 contrast:3")
  --shifted N        test images that are corrupted (default: 2000)
  --draws N          members of every posterior that is no set of particles (default: 10)
  --budget N         trials of each search, at most 6 (default: 6)
  --equal-time LIST  also train each method for as many steps as so many times the processor time of `map` pays for, say "1 5"
                     (default: none); `map` has to be among the methods, or finished\n
Writes OUT/comparison.md and OUT/comparison/{table,paired,runs}.csv. Where not all five training batches are on disk:
--set data.cifar10.batches=[1]\n\n%s\n' "$COMPARISON_OPTIONS" "$SWEEP_OPTIONS"
}

methods='' attacked=1000 foreign=10000 epsilons="0.002 0.005" draws=10 budget=6
shifts="gaussian-noise:3 gaussian-blur:3 contrast:3" shifted=2000 equal_time=''

take_own_options() {
    while (($#)); do
        case $1 in
        --methods) methods=$2 ;;
        --attacked) attacked=$2 ;;
        --foreign) foreign=$2 ;;
        --epsilons) epsilons=$2 ;;
        --draws) draws=$2 ;;
        --budget) budget=$2 ;;
        --shifts) shifts=$2 ;;
        --shifted) shifted=$2 ;;
        --equal-time) equal_time=$2 ;;
        *) refuse "unknown argument \`$1\`; --help tells what is known" ;;
        esac
        shift 2
    done
    whole attacked foreign shifted draws budget
    [[ -z $equal_time ]] || numbers --equal-time "$equal_time"
    ((budget <= 6)) || refuse "--budget $budget: at most 6, so that every method has as many trials"
    numbers --epsilons "$epsilons"
    local steps
    steps=$(steps_of "$images" "$epochs")
    ((steps >= $(fewest_steps))) ||
        refuse "--images $images --epochs $epochs: $steps steps are too few for $draws draws; they need $(fewest_steps)"
}

steps_of() { echo $(($1 * 4 / 5 / COMPARISON_BATCH * $2)); }

# The fewest steps in which every method has room for its phases and draws.
fewest_steps() { echo $((draws > 15 ? 2 * draws : 30)); }

# settings METHOD: sets file=, text_head=, own=(KEY=VALUE…) for the size of this comparison, and over=(KEY=VALUES…), a grid of six for every
# method; over=() where nothing is searched by validation NLL of an epoch.
settings() {
    local trained=$((images * 4 / 5)) steps
    steps=$(steps_of "$images" "$epochs")
    local sixth=$((steps / 6)) kept=$((steps / (2 * draws)))
    file=configs/methods/$1.toml own=() over=() text_head=(--set "head.zero-shot.weights=$head") rates=1e-3,2e-3,4e-3,6e-3,1e-2,1.5e-2
    local few=2e-3,4e-3,1e-2
    case $1 in
    map) file=configs/methods/lora.toml over=("optimizer.adamw.lr=$rates") ;;
    # Its members are single networks, so the search for `map` is its own.
    ensemble) file=configs/methods/bella-ensemble.toml own=("method.ensemble.particles=$particles") ;;
    svgd)
        file=configs/methods/bella-svgd-weight.toml own=("method.svgd.particles=$particles" optimizer.adamw.lr=6e-3)
        over=("optimizer.adamw.lr=$few" method.svgd.gamma=0.01,0.1)
        ;;
    sam) over=("optimizer.adamw.lr=$few" method.sam.rho=0.01,0.05) ;;
    ivon)
        own=("${IVON_SETTINGS[@]}" "method.ivon.samples=$draws")
        over=("${IVON_AXES[@]}")
        ;;
    vogn)
        own=(method.vogn.damping=0.03 method.vogn.hess_init=0.01 "method.vogn.samples=$draws")
        over=(method.vogn.lr=0.01,0.02,0.04 method.vogn.ess=1e5,1e6)
        ;;
    bbb)
        own=("method.bbb.ess=$trained" "method.bbb.samples=$draws" method.bbb.std_init=0.005)
        over=(method.bbb.lr=4e-3,8e-3,1.5e-2 method.bbb.temperature=0.01,1)
        ;;
    swag)
        local columns=$((steps / 2 / kept))
        ((columns <= 10)) || columns=10
        own=("method.swag.every=$kept" "method.swag.columns=$columns" "method.swag.samples=$draws")
        over=(optimizer.adamw.lr=2e-3,4e-3,8e-3 "method.swag.start=$((steps / 3)),$((steps / 2))")
        ;;
    mc-dropout)
        own=("method.mc-dropout.samples=$draws")
        over=("optimizer.adamw.lr=$few" method.mc-dropout.rate=0.05,0.2)
        ;;
    sgld | psgld | sghmc)
        own=("method.$1.ess=$trained" "method.$1.samples=$draws" "method.$1.every=$kept" "method.$1.start=0")
        over=("method.$1.temperature=0.01,1")
        case $1 in
        sgld) over+=(method.sgld.lr=0.1,0.3,1) ;;
        psgld) over+=(method.psgld.lr=1e-3,3e-3,1e-2) ;;
        sghmc)
            # Three cycles; the last two fifths of each are sampled.
            local sampled=$((sixth * 4 / 5))
            kept=$((3 * sampled / draws))
            ((kept > 0)) || kept=1
            ((kept <= sampled)) || kept=$sampled
            own+=("method.sghmc.cycle=$((2 * sixth))" method.sghmc.exploration=0.6 "method.sghmc.every=$kept")
            over+=(method.sghmc.lr=0.01,0.03,0.1)
            ;;
        esac
        ;;
    mclmc)
        # The optimizer leads the chains for half of the steps, and tuning takes a sixth.
        local start=$((steps / 2 + sixth))
        file=configs/methods/mile.toml
        own=("method.mclmc.ess=$trained" "method.mclmc.samples=$draws" "method.mclmc.fit_steps=$((steps / 2))" "method.mclmc.tune_steps=$sixth"
            "method.mclmc.start=$start" "method.mclmc.every=$(((steps - start) / draws))")
        over=("optimizer.adamw.lr=$few" method.mclmc.temperature=0.01,1)
        ;;
    ibdr)
        own=("method.ibdr.particles=$particles")
        over=("optimizer.adamw.lr=$few" method.ibdr.diversity=0.02,0.2)
        ;;
    bayestune)
        own=("method.bayestune.search_steps=$((2 * sixth))")
        over=("optimizer.adamw.lr=$few" method.bayestune.share=0.05,0.5)
        ;;
    blob | scalabl)
        # The authors' cycle: 100 N^(π/8) / batch size.
        own=("method.$1.cycle=$(awk "BEGIN { print int(100 * $trained ^ 0.3927 / $COMPARISON_BATCH) + 1 }")" "method.$1.samples=$draws"
            optimizer.adamw.weight_decay=0.1)
        over=("optimizer.adamw.lr=$few")
        case $1 in
        blob) over+=(method.blob.kl_lr=0.002,0.02) ;;
        scalabl) over+=(method.scalabl.kl_lr=0.02,0.2) ;;
        esac
        ;;
    vbll)
        # A text head is frozen, so there is a new linear one.
        own=("method.vbll.ess=$trained" "method.vbll.samples=$draws" optimizer.adamw.weight_decay=0) text_head=()
        over=("optimizer.adamw.lr=$few" method.vbll.std_lr=1e-3,1e-2)
        ;;
    # Fitted after training with the settings that map has found, by rules of their own: the prior's precision by
    # validation, the spread by bisection.
    laplace)
        file=configs/methods/vbl.toml own=(method.laplace.tuning=validation "method.laplace.samples=$draws")
        ;;
    tfb) own=("method.tfb.samples=$draws") ;;
    # Nothing is trained, so there is nothing to search; texts behind a ready head are not known.
    bayesvlm) own=("method.bayesvlm.images=$trained" 'subspace.projections.modalities="image"') ;;
    *) refuse "--methods: $1 is unknown, or this script has no settings for it yet" ;;
    esac
}

# Prints every registered method that trains.
all_methods() {
    "$bella" list | awk '/^\[method/ { on = 1; next } /^\[|^$/ { on = 0 } on && $1 != "imported" { print $1 }'
}

# search METHOD: sets config= to the config with the lowest validation NLL.
search() {
    local axis set arguments=()
    settings "$1"
    for axis in "${over[@]}"; do arguments+=(--over "$axis"); done
    for set in "${own[@]}"; do arguments+=(--set "$set"); done
    search_by "$folder/search-$1.log" "$1 over ${over[*]}" configs/comparison.toml "$file" ${config_files[@]+"${config_files[@]}"} \
        "${common[@]}" ${text_head[@]+"${text_head[@]}"} "${arguments[@]}" ${sets[@]+"${sets[@]}"} --set "seed=${seeds[0]}" --budget "$budget"
}

# train_arguments METHOD: searches, and sets arguments=(…), those of `bella train` for every seed, config= to the chosen config, and with it
# what `settings` sets.
train_arguments() {
    settings "$1"
    if ((${#over[@]})); then
        search "$1" || return 1
        arguments=(--config "$config")
    elif [[ $1 == bayesvlm ]]; then
        arguments=(--config configs/comparison.toml --config "$file" "${common[@]}" "${text_head[@]}")
        add_sets "${own[@]}"
    else
        search map || return 1
        settings "$1"
        arguments=(--config "$config" --config "$file")
        add_sets "${own[@]}" "optimizer.adamw.lr=$(rate_of "$config")"
    fi
}

add_sets() {
    local set
    for set in "$@"; do arguments+=(--set "$set"); done
}

# add_cells NAME METHOD: adds a cell for every seed with its evaluations.
add_cells() {
    local before=${#cell_names[@]} at attacked_as=()
    # Linearised logits and closed forms cannot be attacked: of them drawn weights are.
    [[ $2 != laplace && $2 != bayesvlm ]] || attacked_as=(--predictive sampled)
    cell "$1" "${arguments[@]}"
    for ((at = before; at < ${#cell_names[@]}; at++)); do
        cell_evals[at]="$(quoted eval --conformal 0.1 --conformal-score lac --calibrate --ood "$folder/cifar100.toml")
$(quoted eval --attack fgsm --epsilon "${epsilons// /,}" --set "data.cifar10.subset.test=$attacked" \
            ${attacked_as[@]+"${attacked_as[@]}"})
$(quoted eval --corrupt "${shifts// /,}" --calibrate --set "data.cifar10.subset.test=$shifted")
"
    done
}

# seconds_of METHOD: prints the mean processor seconds of its finished runs of equal epochs.
seconds_of() {
    local seed run seconds
    for seed in "${seeds[@]}"; do
        seconds=''
        while read -r run; do
            [[ ! -f $run/processor-seconds.txt ]] || seconds=$(awk '{ sum += $1 } END { print sum }' "$run/processor-seconds.txt")
        done < <(sed -n 's/^run: //p' "$folder/$1-s$seed.log" 2>/dev/null)
        [[ -z $seconds ]] || echo "$seconds"
    done | awk '{ sum += $1 } END { if (NR > 0) print sum / NR }'
}

# pay METHOD FACTOR: sets images= and epochs= to what FACTOR times the processor time of `map` pays for. Where that is no whole epoch, it is
# one epoch of fewer images. Returns 1 where there is nothing to train: because it is what equal epochs are, or too little.
pay() {
    local own of_map paid
    own=$(seconds_of "$1") of_map=$(seconds_of map)
    [[ -n $own && -n $of_map ]] || { say "$1 at $2 times the time of map: the runs of both for equal epochs are needed first" && return 1; }
    # The number of epochs, then that of images in the first of them.
    read -r paid epochs images <<<"$(awk -v factor="$2" -v cost="$(awk "BEGIN { print $own / $of_map }")" -v epochs="$epochs" -v images="$images" '
        BEGIN {
            paid = factor * epochs / cost
            print paid / epochs, paid < 1 ? 1 : int(paid + 0.5), paid < 1 ? int(images * paid) : images
        }')"
    awk "BEGIN { exit !($paid < 1 / 1.15 || $paid > 1.15) }" || return 1
    (($(steps_of "$images" "$epochs") >= $(fewest_steps))) ||
        { say "$1 at $2 times the time of map: $(steps_of "$images" "$epochs") steps are too few" && return 1; }
}

# add_paid METHOD FACTOR: adds cells with the settings that were chosen for equal epochs, but with fewer or more steps.
add_paid() {
    local own=() over=() arguments=() text_head=() rates file start steps set
    steps=$(steps_of "$images" "$epochs")
    train_arguments "$1" || return 1
    local images=$images epochs=$epochs common=()
    pay "$1" "$2" || return 0
    comparison_settings
    settings "$1"
    arguments+=("${common[@]}")
    for set in ${own[@]+"${own[@]}"}; do
        # What was searched stays as it was chosen.
        [[ " ${over[*]-}" == *" ${set%%=*}="* ]] || add_sets "$set"
    done
    if [[ $1 == swag ]]; then
        start=$(sed -n '/^\[method.swag\]/,$s/^start = //p' "$config" | head -n 1)
        add_sets "method.swag.start=$((start * $(steps_of "$images" "$epochs") / steps))"
    fi
    add_cells "$1@$2" "$1"
}

# study METHOD FACTOR: all of a method, before the next one is searched; with a FACTOR, the cells of so much time.
study() {
    local arguments=()
    cell_names=() cell_trains=() cell_evals=()
    if [[ -n ${2:-} ]]; then
        add_paid "$1" "$2" || return 1
    else
        train_arguments "$1" || return 1
        add_cells "$1" "$1"
    fi
    ((${#cell_names[@]})) || return 0
    cells=$((cells + ${#cell_names[@]}))
    local code=0
    run_cells comparison || code=1
    trap stop_search INT TERM
    write_table >/dev/null || code=1
    return "$code"
}

write_table() {
    # shellcheck disable=SC2046 # one word a method
    python3 scripts/compare_methods.py --bella "$bella" --out "$out" --epsilons "$epsilons" --shifts "$shifts" \
        --tested "$test_images" --attacked "$attacked" --shifted "$shifted" --foreign "$foreign" $(all_methods)
}

# One function, so that this file may change while it runs.
main() {
    take_options "$@"
    take_comparison_options ${rest[@]+"${rest[@]}"}
    take_own_options ${rest[@]+"${rest[@]}"}
    refuse_unsearched
    [[ -n $methods ]] || methods=$(all_methods)
    folder=$out/sweeps/comparison failed=0 cells=0 unevaluated=--no-eval
    if [[ -z $table_only ]]; then
        mkdir -p "$folder"
        printf '[data.cifar100]\nroot = "%s"\nsubset = { test = %s }\n' "$(realpath "$data")" "$foreign" >"$folder/cifar100.toml"
        take_config_files
        comparison_settings
        trap stop_search INT TERM
        for method in $methods; do
            for factor in '' $equal_time; do study "$method" "$factor" || failed=1; done
        done
        ((cells || failed)) || refuse "no cells: --match $match fits none"
    fi
    write_table
    exit "$failed"
}

main "$@"
