#!/usr/bin/env bash
# Methods beside each other on any experiment: the learning rate of each by `bella sweep` on held-out samples, with as many trials for
# each; then every seed is trained and evaluated, and the methods are compared image by image with the first of the list.
# Run it again after anything: finished trials, cells and evaluations are skipped, interrupted ones continue.
# A trap calls the last function, and functions set variables of those that call them.
# shellcheck disable=SC2317
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

usage() {
    printf 'Usage: scripts/compare_experiment.sh --config FILE [OPTIONS]\n
  --methods LIST   files of configs/methods without their ending; the others are compared with the first
                   (default: "lora bella-ensemble bella-svgd-weight ivon vbl")
  --rates LIST     learning rates that are searched (default: 1e-3,2e-3,4e-3,1e-2); IVON has a grid of its own
  --over "METHOD KEY=VALUES"  what is searched for a method instead, one value or several; repeat
  --budget N       trials of each search, fewer where there are fewer settings (default: 6)
  --condition NAME condition of the compared predictions, say "fgsm 0.01" (default: clean)
  --test-set NAME  test set that is compared, where there are several, say domainnet-sketch
  --eval COMMAND   a further evaluation of every run, say "eval --attack fgsm --epsilon 0.01"; repeat\n
`bella-ensemble` and `vbl` are trained at the rate that `lora` has found, which is searched first, and `ensemble` at that of `single`.
Prints statistics over the seeds and the differences, and writes the latter to OUT/differences.csv.\n\n%s\n' "$SWEEP_OPTIONS"
}

methods="lora bella-ensemble bella-svgd-weight ivon vbl" rates=1e-3,2e-3,4e-3,1e-2 budget=6 condition=clean test_set='' evaluations=()
declare -A axes=()

take_own_options() {
    while (($#)); do
        (($# > 1)) || refuse "$1: unknown argument, or it needs a value; --help tells what is known"
        case $1 in
        --methods) methods=$2 ;;
        --rates) rates=$2 ;;
        --over)
            [[ $2 == *" "*=* ]] || refuse "--over: \`$2\` is not of the form \"METHOD KEY=VALUES\""
            axes[${2%% *}]+=" ${2#* }"
            ;;
        --budget) budget=$2 ;;
        --condition) condition=$2 ;;
        --test-set) test_set=$2 ;;
        --eval) evaluations+=("$2") ;;
        *) refuse "unknown argument \`$1\`; --help tells what is known" ;;
        esac
        shift 2
    done
    ((${#configs[@]})) || refuse "--config is needed: an experiment"
    whole budget
    numbers --rates "${rates//,/ }"
    ((${#seeds[@]})) || seeds=(1 2 3)
    local method
    for method in $methods; do
        [[ -f configs/methods/$method.toml ]] || refuse "--methods: there is no configs/methods/$method.toml"
    done
    local of searched=' '
    for method in $methods; do searched+="$(search_of "$method") "; done
    for method in "${!axes[@]}"; do
        of=$(search_of "$method")
        [[ $searched == *" $of "* ]] || refuse "--over: \`$method\` is not among --methods"
        [[ $of == "$method" ]] || refuse "--over: \`$method\` takes the settings that are found for \`$of\`: give --over \"$of${axes[$method]}\""
    done
}

# search_of METHOD: prints the method whose search finds its settings: what is made of single networks takes theirs.
search_of() {
    case $1 in
    bella-ensemble | vbl) echo lora ;;
    ensemble) echo single ;;
    *) echo "$1" ;;
    esac
}

# searched METHOD: sets words=(--set …) (--over …), what is set and searched for a method.
searched() {
    local own=() over=("optimizer.adamw.lr=$rates") word
    if [[ $1 == ivon ]]; then own=("${IVON_SETTINGS[@]}") over=("${IVON_AXES[@]}"); fi
    if [[ ${axes[$1]-} ]]; then read -ra over <<<"${axes[$1]}"; fi
    words=()
    for word in ${own[@]+"${own[@]}"}; do
        [[ " ${over[*]}" == *" ${word%%=*}="* ]] || words+=(--set "$word")
    done
    for word in "${over[@]}"; do words+=(--over "$word"); done
}

# search METHOD: sets config= to the config with the lowest loss of held-out samples.
search() {
    local words
    searched "$1"
    search_by "$folder/search-$1.log" "$1 ${words[*]}" "${config_files[@]}" "configs/methods/$1.toml" ${sets[@]+"${sets[@]}"} "${words[@]}" --set "seed=${seeds[0]}" --budget "$budget"
}

# add_method METHOD: searches, and adds a cell for every seed.
add_method() {
    local config file files=() of
    of=$(search_of "$1")
    search "$of" || return 1
    if [[ $of == "$1" ]]; then
        cell "$1" --config "$config"
        return
    fi
    for file in "${config_files[@]}" "configs/methods/$1.toml"; do files+=(--config "$file"); done
    cell "$1" "${files[@]}" --set "optimizer.adamw.lr=$(rate_of "$config")"
}

# compare: the differences of all methods from the first, seed by seed.
compare() {
    local method seed words head=yes
    : >"$out/differences.csv.new"
    for seed in "${seeds[@]}"; do
        words=()
        for method in $methods; do words+=("$(sed -n 's/^run: //p' "$folder/$method-s$seed.log" | grep / | tail -n 1)"); done
        words+=(--condition "$condition" ${test_set:+--test-set "$test_set"} --average pm --out "$out")
        "$bella" compare "${words[@]}"
        "$bella" compare "${words[@]}" --csv | if [[ $head ]]; then sed '1s/^/training_seed,/; 2,$s/^/'"$seed"',/'; else sed "1d; s/^/$seed,/"; fi \
            >>"$out/differences.csv.new"
        head=''
    done
    mv "$out/differences.csv.new" "$out/differences.csv"
}

# One function, so that this file may change while it runs.
main() {
    take_options "$@"
    take_own_options ${rest[@]+"${rest[@]}"}
    refuse_unsearched
    folder=$out/sweeps/experiment
    mkdir -p "$folder"
    trap stop_search INT TERM
    # The chosen configs have what these have, and the methods' own settings come after them.
    local method evaluation words at
    take_config_files
    configs=()
    for method in $methods; do add_method "$method"; done
    for evaluation in ${evaluations[@]+"${evaluations[@]}"}; do
        read -ra words <<<"$evaluation"
        for ((at = 0; at < ${#cell_names[@]}; at++)); do cell_evals[at]+="$(quoted "${words[@]}")"$'\n'; done
    done
    run_cells experiment
    "$bella" report "$out" --seeds
    compare
}

main "$@"
