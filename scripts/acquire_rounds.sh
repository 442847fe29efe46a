#!/usr/bin/env bash
# Whether `bella acquire` chooses better images to label than chance does, on images whose labels are known: every rule begins with the
# same few labels, and is trained, chooses and is trained again, round after round; the last column is what a random choice has.
# Run it again after anything: finished runs and lists are kept, an interrupted run continues.
# shellcheck disable=SC2016 # backquotes of the help are not bash's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/sweep.sh
. scripts/sweep.sh

usage() {
    printf 'Usage: scripts/acquire_rounds.sh --pool FOLDER --test FOLDER --config FILE [--config FILE …] [OPTIONS]\n
  --pool FOLDER    images to choose from, as CLASS/IMAGE
  --test FOLDER    images to measure on, as CLASS/IMAGE with the same classes
  --config FILE    checkpoint, head, subspace, method and training; its data set is replaced by the lists of the rounds
  --rules LIST     rules of `bella acquire` (default: "random entropy margin mi core-set"); random is always among them
  --start N        images that are labelled at the start, drawn at random (default: 200)
  --each N         images that are labelled each round (default: 100)
  --rounds N       (default: 3)
  --table          only write the table of what there is\n
Writes OUT/acquire.md and OUT/acquire.csv. --jobs N runs N seeds at a time.\n\n%s\n' "$SWEEP_OPTIONS"
}

readonly RULES="random entropy margin mi batchbald core-set"
pool='' test='' rules="random entropy margin mi core-set" start=200 each=100 rounds=3 table_only=''

take_own_options() {
    while (($#)); do
        [[ $1 == --table ]] || (($# > 1)) || refuse "$1: unknown argument, or it needs a value; --help tells what is known"
        case $1 in
        --pool) pool=$2 ;;
        --test) test=$2 ;;
        --rules) rules=$2 ;;
        --start) start=$2 ;;
        --each) each=$2 ;;
        --rounds) rounds=$2 ;;
        --table) table_only=yes && shift && continue ;;
        *) refuse "unknown argument \`$1\`; --help tells what is known" ;;
        esac
        shift 2
    done
    [[ -n $table_only || (-d $pool && -d $test) ]] || refuse "--pool and --test: name two folders of images, CLASS/IMAGE"
    [[ -n $table_only ]] || ((${#configs[@]})) || refuse "--config is needed; --help tells what it holds"
    local name
    for name in start each rounds; do
        [[ ${!name} =~ ^[1-9][0-9]*$ ]] || refuse "--$name ${!name}: must be a whole number from 1"
    done
    [[ " $rules " == *" random "* ]] || rules="random $rules"
    for name in $rules; do
        [[ " $RULES " == *" $name "* ]] || refuse "--rules: unknown rule \`$name\`; known: $RULES"
    done
}

# train_on LIST: trains on a list, and sets run= to the run's folder.
train_on() {
    local log=${1%.csv}.log
    run_logged "$log" "$bella" train "${configs[@]}" --config "$folder/data.toml" ${sets[@]+"${sets[@]}"} \
        --set "data.list.list=\"${1##*/}\"" --set "seed=$seed" --out "$out" ${device:+--device "$device"} \
        ${passed[@]+"${passed[@]}"} ||
        { say "training failed: $(tail -n 1 "$log") [$log]" && return 1; }
    run=$(sed -n 's/^run: //p' "$log" | tail -n 1)
    [[ -d $run ]] || { say "training named no run [$log]" && return 1; }
}

# choose RULE LIST NEXT ROUND: writes NEXT, which is LIST and the images that the run chooses.
choose() {
    local log=${3%.csv}.log chosen=${3%.csv}-chosen.csv drawn=()
    [[ ! -s $3 ]] || return 0
    [[ $1 != random ]] || drawn=(--seed "$((1000 * seed + $4))")
    run_logged "$log" "$bella" acquire "$run" "$pool" --by "$1" --count "$each" ${drawn[@]+"${drawn[@]}"} \
        --folder-labels --output "$chosen" --out "$out" ${device:+--device "$device"} ||
        { say "the choice failed: $(tail -n 1 "$log") [$log]" && return 1; }
    # bash does not stop at an error in a function whose outcome is asked for: half a list must not become one.
    { cat "$2" && tail -n +2 "$chosen"; } >"$3.new" && mv "$3.new" "$3"
}

# rounds_of SEED: all rules of a seed, one after the other. They share the run on the first list.
rounds_of() {
    local seed=$1 rule round list next run
    local rows=$folder/$size-s$seed.tsv
    end_by_term
    : >"$rows" || return 1
    for rule in $rules; do
        list=$folder/$size-s$seed-start.csv
        for ((round = 0; ; round++)); do
            train_on "$list" || return 1
            printf '%s\t%s\t%s\t%s\n' "$rule" "$seed" "$((start + round * each))" "$run" >>"$rows" || return 1
            ((round < rounds)) || break
            next=$folder/$size-s$seed-$rule-$((round + 1)).csv
            say "seed $seed, $rule, round $((round + 1))"
            choose "$rule" "$list" "$next" "$round" || return 1
            list=$next
        done
    done
}

# expect_same: refuses lists of other configs, settings or images, which an earlier run has left under the same names.
expect_same() {
    local asked file=$folder/$size.asked
    asked=$(printf '%s\n' "$(realpath "$pool")" "$(realpath "$test")" ${sets[@]+"${sets[@]}"} && cat "${config_files[@]}") || return 1
    [[ ! -f $file || $(<"$file") == "$asked" ]] ||
        refuse "$folder: its lists of $size images are of other configs, settings or images: give another --out, or remove $folder/$size*"
    printf '%s\n' "$asked" >"$file"
}

run_rounds() {
    local seed
    pids=()
    take_config_files
    share_cores
    mkdir -p "$folder"
    expect_same
    trap stop_cells INT TERM
    printf '[data.list]\nroot = "%s"\nlabel = "%s"\n' "$(realpath "$folder")" "$(basename "$test")" >"$folder/data.toml"
    for seed in "${seeds[@]}"; do
        python3 scripts/acquire_rounds.py start --pool "$pool" --test "$test" --count "$start" --seed "$seed" \
            "$folder/$size-s$seed-start.csv"
        rounds_of "$seed" &
        pids+=("$!")
        ((${#pids[@]} < jobs)) || join_seeds
    done
    join_seeds
}

# Waits for the seeds that run.
join_seeds() {
    local pid
    for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || failed=1; done
    pids=()
}

# One function, so that this file may change while it runs.
main() {
    take_options "$@"
    take_own_options ${rest[@]+"${rest[@]}"}
    [[ $action == run && -z $rehearse ]] ||
        refuse "--dry-run, --count, --rehearse: each round follows from the one before, which only a run makes"
    ((${#seeds[@]})) || seeds=(1 2 3 4 5)
    folder=$out/sweeps/acquire size=$start+$each failed=0
    [[ -n $table_only ]] || run_rounds
    python3 scripts/acquire_rounds.py table --out "$out" "$folder/$size"-s*.tsv
    exit "$failed"
}

main "$@"
