#!/usr/bin/env bash
# One table of twelve recipes of training on CIFAR-10 with a CLIP archive: plain Bella-SVGD, each switch alone, and all together. Every recipe
# has the settings of configs/comparison.toml, as many epochs and the same seeds; none is searched for, so that a row shows a switch as it
# would be tried first.
# Run it again after anything: finished cells are skipped, interrupted ones continue.
# shellcheck disable=SC2054 # commas are TOML's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

usage() {
    printf 'Usage: scripts/compare_recipes.sh --checkpoint FILE --head FILE [OPTIONS]\n\n%s\n
Writes OUT/recipes/{table.md,table.csv,paired.csv}: means over seeds with 95 %% intervals, all metrics, and the paired bootstrap of each recipe
against `plain` of the same seed. Where not all five training batches are on disk: --set data.cifar10.batches=[1]\n\n%s\n' \
        "$COMPARISON_OPTIONS" "$SWEEP_OPTIONS"
}

low_rank=subspace.low-rank
smoothing=(train.label_smoothing=0.1)
mixup=(train.mixup.alpha=0.2)
cutmix=(train.mixup.alpha=0 train.mixup.cutmix_alpha=1.0 train.mixup.prob=0.5)
ema=(train.ema.decay=0.99 train.ema.use_warmup=true)
decay=(train.layer_decay=0.8)
b_rate=(train.b_rate=4.0)
rslora=("$low_rank.rslora=true")
dora=("$low_rank.dora=true")
eva=("$low_rank.init=\"eva\"")
together=("${smoothing[@]}" train.mixup.alpha=0.2 train.mixup.cutmix_alpha=1.0 train.mixup.prob=0.5 "${ema[@]}" "${decay[@]}" "${b_rate[@]}"
    "${rslora[@]}" "${dora[@]}" "${eva[@]}")

# recipe NAME SETS…: adds a cell for every seed. Its results have an experiment of their own, by whose name tables tell recipes apart.
recipe() {
    local name=$1 set arguments=(--config configs/comparison.toml "${common[@]}" --set "name=\"recipes-$1\"")
    shift
    for set in "$@"; do arguments+=(--set "$set"); done
    cell "$name" "${arguments[@]}"
}

recipes() {
    recipe plain
    recipe smoothing "${smoothing[@]}"
    recipe mixup "${mixup[@]}"
    recipe cutmix "${cutmix[@]}"
    recipe ema "${ema[@]}"
    recipe layer-decay "${decay[@]}"
    recipe b-rate "${b_rate[@]}"
    recipe rslora "${rslora[@]}"
    recipe dora "${dora[@]}"
    recipe pissa "$low_rank.init=\"pissa\""
    recipe eva "${eva[@]}"
    recipe together "${together[@]}"
}

# run_of NAME: the folder of the run of a cell by the last line `run: FOLDER` of its log; nothing if there is none.
run_of() {
    local run
    run=$(sed -n 's/^run: //p' "$folder/$1.log" 2>/dev/null | tail -n 1)
    [[ -f $run/posterior.safetensors ]] && echo "$run"
}

write_tables() {
    local files=("$out"/recipes-*.csv) table=$out/recipes seed name plain run header=''
    [[ -f ${files[0]} ]] || refuse "$out: no recipe has results yet"
    mkdir -p "$table"
    "$bella" report "${files[@]}" --seeds --format markdown >"$table/table.md"
    "$bella" report "${files[@]}" --seeds --csv >"$table/table.csv"
    : >"$table/paired.csv.new"
    for seed in "${seeds[@]}"; do
        plain=$(run_of "plain-s$seed") || continue
        for name in smoothing mixup cutmix ema layer-decay b-rate rslora dora pissa eva together; do
            run=$(run_of "$name-s$seed") || continue
            "$bella" compare "$plain" "$run" --out "$out" --csv | awk -v add="$name,$seed" -v header="$header" '
                NR > 1 { print add "," $0 }
                NR == 1 && header == "" { print "recipe,run_seed," $0 }' >>"$table/paired.csv.new"
            header=written
        done
    done
    mv "$table/paired.csv.new" "$table/paired.csv"
    say "tables: $table/table.md, $table/table.csv, $table/paired.csv"
}

# One function, so that this file may change while it runs.
main() {
    take_options "$@"
    take_comparison_options ${rest[@]+"${rest[@]}"}
    no_rest
    folder=$out/sweeps/recipes failed=0
    if [[ -z $table_only ]]; then
        comparison_settings
        common+=(--set "head.zero-shot.weights=$head" --set "method={svgd={particles=$particles,gamma=0.01}}")
        recipes
        run_cells recipes || failed=1
        [[ $action == run && -z $rehearse ]] || exit "$failed"
    fi
    write_tables
    exit "$failed"
}

main "$@"
