#!/usr/bin/env bash
# One table of every method on CIFAR-10 with a CLIP archive: settings by `bella sweep` on held-out images, with as many trials
# for each method; then every seed is trained for equally many epochs, evaluated, attacked, and shown CIFAR-100.
# Run it again after anything: finished trials, cells and evaluations are skipped, interrupted ones continue.
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
  --draws N          members of every posterior that is no set of particles (default: 10)
  --budget N         trials of each search, at most 6 (default: 6)\n
Writes OUT/comparison.md and OUT/comparison/{table,paired}.csv. Where not all five training batches are on disk:
--set data.cifar10.batches=[1]\n\n%s\n' "$COMPARISON_OPTIONS" "$SWEEP_OPTIONS"
}

methods='' attacked=1000 foreign=10000 epsilons="0.002 0.005" draws=10 budget=6

take_own_options() {
    while (($#)); do
        case $1 in
        --methods) methods=$2 ;;
        --attacked) attacked=$2 ;;
        --foreign) foreign=$2 ;;
        --epsilons) epsilons=$2 ;;
        --draws) draws=$2 ;;
        --budget) budget=$2 ;;
        *) refuse "unknown argument \`$1\`; --help tells what is known" ;;
        esac
        shift 2
    done
    whole attacked foreign draws budget
    ((budget <= 6)) || refuse "--budget $budget: at most 6, so that every method has as many trials"
    numbers --epsilons "$epsilons"
    local steps=$((images * 4 / 5 / COMPARISON_BATCH * epochs)) least=$((2 * draws))
    ((least >= 30)) || least=30
    ((steps >= least)) ||
        refuse "--images $images --epochs $epochs: $steps steps are too few for $draws draws; they need $least"
}

# settings METHOD: sets file=, text_head=, own=(KEY=VALUE…) for the size of this comparison, and over=(KEY=VALUES…), a grid of six for every
# method; over=() where nothing is searched by validation NLL of an epoch.
settings() {
    local trained=$((images * 4 / 5))
    local steps=$((trained / COMPARISON_BATCH * epochs))
    local sixth=$((steps / 6)) kept=$((steps / (2 * draws)))
    file=configs/methods/$1.toml own=() over=() text_head=(--set "head.zero-shot.weights=$head") rates=2e-3,4e-3,6e-3,1e-2,1.5e-2,2e-2
    local few=4e-3,8e-3,1.5e-2
    case $1 in
    map) file=configs/methods/lora.toml over=("optimizer.adamw.lr=$rates") ;;
    ensemble)
        file=configs/methods/bella-ensemble.toml own=("method.ensemble.particles=$particles" optimizer.adamw.lr=6e-3)
        over=("optimizer.adamw.lr=$rates")
        ;;
    svgd)
        file=configs/methods/bella-svgd-weight.toml own=("method.svgd.particles=$particles" optimizer.adamw.lr=6e-3)
        over=("optimizer.adamw.lr=$few" method.svgd.gamma=0.01,0.1)
        ;;
    sam) over=("optimizer.adamw.lr=$few" method.sam.rho=0.01,0.05) ;;
    ivon)
        own=(method.ivon.hess_init=0.03 method.ivon.clip_radius=1 method.ivon.beta2=0.9999 "method.ivon.samples=$draws")
        over=(method.ivon.lr=0.01,0.02,0.04 method.ivon.ess=1e5,1e6)
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
    local log=$folder/search-$1.log axis set arguments=()
    settings "$1"
    for axis in "${over[@]}"; do arguments+=(--over "$axis"); done
    for set in "${own[@]}"; do arguments+=(--set "$set"); done
    say "search of $1 over ${over[*]}"
    run_logged "$log" "$bella" sweep configs/comparison.toml "$file" ${config_files[@]+"${config_files[@]}"} \
        "${common[@]}" ${text_head[@]+"${text_head[@]}"} "${arguments[@]}" ${sets[@]+"${sets[@]}"} --set "seed=${seeds[0]}" --budget "$budget" --jobs "$jobs" \
        --out "$out" ${device:+--device "$device"} ${passed[@]+"${passed[@]}"} ||
        { say "the search of $1 failed: $(tail -n 1 "$log") [$log]" && return 1; }
    config=$(sed -n 's/.*on the test split: bella train --config //p' "$log" | tail -n 1)
}

# add METHOD: searches, and adds a cell for every seed with its evaluations.
add() {
    local method=$1 before=${#cell_names[@]} at set arguments=() attacked_as=() fitted
    settings "$method"
    fitted=${over[*]-}
    if [[ -n $fitted ]]; then
        search "$method" || return 1
        arguments=(--config "$config")
    elif [[ $method == bayesvlm ]]; then
        arguments=(--config configs/comparison.toml --config "$file" "${common[@]}" "${text_head[@]}")
        for set in "${own[@]}"; do arguments+=(--set "$set"); done
    else
        search map || return 1
        settings "$method"
        arguments=(--config "$config" --config "$file")
        own+=("optimizer.adamw.lr=$(sed -n '/^\[optimizer.adamw\]/,$s/^lr = //p' "$config" | head -n 1)")
        for set in "${own[@]}"; do arguments+=(--set "$set"); done
    fi
    # Linearised logits and closed forms cannot be attacked: of them drawn weights are.
    [[ $method != laplace && $method != bayesvlm ]] || attacked_as=(--predictive sampled)
    cell "$method" "${arguments[@]}"
    for ((at = before; at < ${#cell_names[@]}; at++)); do
        cell_evals[at]="$(quoted eval --conformal 0.1 --conformal-score lac --calibrate --ood "$folder/cifar100.toml")
$(quoted eval --attack fgsm --epsilon "${epsilons// /,}" --set "data.cifar10.subset.test=$attacked" \
            ${attacked_as[@]+"${attacked_as[@]}"})
"
    done
}

write_table() {
    # shellcheck disable=SC2046 # one word a method
    python3 scripts/compare_methods.py --bella "$bella" --out "$out" --epsilons "$epsilons" $(all_methods)
}

stop_search() {
    [[ -z ${child:-} ]] || kill -TERM "$child" 2>/dev/null
    wait
    say "stopped; the same command goes on"
    exit 130
}

# One function, so that this file may change while it runs.
main() {
    take_options "$@"
    take_comparison_options ${rest[@]+"${rest[@]}"}
    take_own_options ${rest[@]+"${rest[@]}"}
    [[ $action == run ]] || refuse "--dry-run, --count: cells follow from searches, which only a run makes"
    [[ -n $methods ]] || methods=$(all_methods)
    folder=$out/sweeps/comparison failed=0
    if [[ -z $table_only ]]; then
        mkdir -p "$folder"
        printf '[data.cifar100]\nroot = "%s"\nsubset = { test = %s }\n' "$(realpath "$data")" "$foreign" >"$folder/cifar100.toml"
        config_files=()
        for file in ${configs[@]+"${configs[@]}"}; do [[ $file == --config ]] || config_files+=("$file"); done
        comparison_settings
        trap stop_search INT TERM
        for method in $methods; do add "$method" || failed=1; done
        run_cells comparison || failed=1
    fi
    write_table
    exit "$failed"
}

main "$@"
