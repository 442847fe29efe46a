# shellcheck shell=bash
# What the sweep scripts share; sourced by them. A sweep is a list of cells: one training run each, and evaluations of it.
# Runs that are finished are not repeated and interrupted ones continue, because bella does so; evaluations are remembered.

# shellcheck disable=SC2034 # the scripts print it
readonly SWEEP_OPTIONS="Options of every sweep (paths are relative to the repository):
  --config FILE    experiment; repeat to merge (default: the sweep's own)
  --set KEY=VALUE  in every cell; repeat
  --seeds LIST     seeds of every cell, say \"1 2 3\" (default: the config's seed)
  --out FOLDER     results folder (default: results)
  --jobs N         cells at a time, each on a GPU of its own where there are GPUs (default: 1); the cores are divided
                   among them, unless OMP_NUM_THREADS or the arguments after -- say how many a job takes
  --device DEVICE  of every cell: cpu, cuda:0 … (default: one GPU a job in turn, or the CPU where there is none)
  --cell K         only the K-th cell, from 1 (default: \$SWEEP_CELL, see scripts/slurm/sweep.sbatch)
  --match GLOB     only the cells whose name fits, say \"cifar10-*\" (before they are numbered)
  --count          print the number of cells
  --dry-run        print the commands
  --rehearse       rehearse every cell instead (bella rehearse): a few steps with stand-ins for checkpoint and data, each
                   stage in a process of its own, then what the real cell takes; in the folder rehearsal of the results
  --tiny           with --rehearse: a tiny model and tiny images, to see whether everything runs
  --bella PATH     the program (default: \$BELLA, target/release/bella, or bella of the PATH)
  -- ARGUMENTS     handed to bella train and bella eval, say --threads 1 --workers 1; to bella rehearse, say --steps 5"

# What the comparisons on CIFAR-10 share.
# shellcheck disable=SC2034 # the scripts print it
readonly COMPARISON_OPTIONS="  --checkpoint FILE  a CLIP archive
  --head FILE        its text head for CIFAR-10, as \`bella head\` writes it
  --data FOLDER      holds the folders of the data sets (default: data)
  --images N         training images, a fifth of which is held out (default: 10000)
  --test-images N    (default: 10000)
  --epochs N         (default: 3)
  --particles N      of methods with several (default: 5)
  --table            only write the tables of what there is, for the same numbers of images"
readonly COMPARISON_BATCH=128

# IVON on low-rank updates: those of its settings that follow from nothing else, and what is searched.
# shellcheck disable=SC2034 # the scripts use them
readonly IVON_SETTINGS=(method.ivon.hess_init=0.03 method.ivon.clip_radius=1 method.ivon.beta2=0.9999)
# shellcheck disable=SC2034
readonly IVON_AXES=(method.ivon.lr=0.01,0.02,0.04 method.ivon.ess=1e5,1e6)

# Cells, in step: a name for files, quoted arguments of train, and quoted commands on the trained run, one per line.
cell_names=() cell_trains=() cell_evals=()

say() { printf 'sweep: %s\n' "$*" >&2; }
# Bad usage.
refuse() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}

# take_options "$@": reads what every sweep knows; the rest is in rest=(…). Defines the settings below.
take_options() {
    configs=() sets=() seeds=() passed=() rest=()
    out=results jobs=1 device='' only=${SWEEP_CELL:-} match='*' action=run bella=${BELLA:-} rehearse='' tiny=()
    while (($#)); do
        case $1 in
        --config | --set | --seeds | --out | --jobs | --device | --cell | --match | --bella)
            (($# > 1)) || refuse "$1 needs a value"
            ;;
        esac
        case $1 in
        --config) configs+=(--config "$2") && shift 2 ;;
        --set) sets+=(--set "$2") && shift 2 ;;
        --seeds) read -ra seeds <<<"$2" && shift 2 ;;
        --out) out=$2 && shift 2 ;;
        --jobs) jobs=$2 && shift 2 ;;
        --device) device=$2 && shift 2 ;;
        --cell) only=$2 && shift 2 ;;
        --match) match=$2 && shift 2 ;;
        --bella) bella=$2 && shift 2 ;;
        --count) action=count && shift ;;
        --dry-run) action=dry-run && shift ;;
        --rehearse) rehearse=yes && shift ;;
        --tiny) tiny=(--tiny) && shift ;;
        --help | -h) usage && exit 0 ;;
        --) shift && passed=("$@") && break ;;
        *) rest+=("$1") && shift ;;
        esac
    done
    [[ $jobs =~ ^[1-9][0-9]*$ ]] || refuse "--jobs $jobs: must be a whole number from 1"
    [[ -z $only || $only =~ ^[1-9][0-9]*$ ]] || refuse "--cell $only: must be a whole number from 1"
    [[ -n $rehearse || ${#tiny[@]} == 0 ]] || refuse "--tiny: is for --rehearse"
    local seed
    for seed in ${seeds[@]+"${seeds[@]}"}; do
        [[ $seed =~ ^[0-9]+$ ]] || refuse "--seeds: \`$seed\` is not a whole number"
    done
    find_bella
}

find_bella() {
    [[ -n $bella ]] || { [[ -x target/release/bella ]] && bella=target/release/bella; } || bella=bella
    [[ $action == run || $action == dry-run ]] || return 0
    command -v "$bella" >/dev/null 2>&1 ||
        refuse "$bella: no such program; build it (cargo build --release), or name it: --bella PATH"
}

# no_rest: refuses what no option took.
no_rest() { ((${#rest[@]} == 0)) || refuse "unknown argument \`${rest[0]}\`; --help tells what is known"; }

# whole NAMES…: refuses variables that are no whole numbers from 1, by their options.
whole() {
    local name
    for name in "$@"; do
        [[ ${!name} =~ ^[1-9][0-9]*$ ]] || refuse "--${name//_/-} ${!name}: must be a whole number from 1"
    done
}

# take_comparison_options "$@": reads what COMPARISON_OPTIONS says; what it does not know is left in rest=(…), each option with its value.
take_comparison_options() {
    checkpoint='' head='' data=data images=10000 test_images=10000 epochs=3 particles=5 table_only='' rest=()
    while (($#)); do
        [[ $1 == --table ]] || (($# > 1)) || refuse "$1: unknown argument, or it needs a value; --help tells what is known"
        case $1 in
        --checkpoint) checkpoint=$2 ;;
        --head) head=$2 ;;
        --data) data=$2 ;;
        --images) images=$2 ;;
        --test-images) test_images=$2 ;;
        --epochs) epochs=$2 ;;
        --particles) particles=$2 ;;
        --table) table_only=yes && shift && continue ;;
        *) rest+=("$1" "$2") ;;
        esac
        shift 2
    done
    [[ -n $table_only || (-n $checkpoint && -n $head) ]] ||
        refuse "--checkpoint and --head are needed; --help tells what they are"
    whole images test_images epochs particles
    ((${#seeds[@]})) || seeds=(1 2 3)
}

# comparison_settings: sets common=(…), the settings of every run of a comparison but its head, and makes the head's path absolute.
comparison_settings() {
    local steps=$((images * 4 / 5 / COMPARISON_BATCH * epochs))
    head=$(realpath "$head")
    common=(--set "checkpoint.path=$(realpath "$checkpoint")" --set "data.cifar10.root=$(realpath "$data")"
        --set "data.cifar10.subset.train=$images" --set "data.cifar10.subset.test=$test_images" --set "train.epochs=$epochs"
        --set "train.batch_size=$COMPARISON_BATCH" --set "train.warmup_steps=$((steps / 10))")
}

# cell NAME ARGUMENTS…: adds a cell for every seed, trained with the configs, the sets and ARGUMENTS.
cell() {
    local name=$1 seed
    shift
    if ((${#seeds[@]} == 0)); then
        add_cell "$name" "$@"
    else
        for seed in "${seeds[@]}"; do add_cell "$name-s$seed" "$@" --set "seed=$seed"; done
    fi
}

# quoted WORDS…: as they can be pasted.
quoted() {
    local word text=''
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_=:,.@%/*+-]+$ && $word != *'*'* ]] || word="'${word//\'/\'\\\'\'}'"
        text+="$word "
    done
    printf '%s' "${text% }"
}

# The sweep's own files come before those of the command line, and its settings before theirs: the later ones win.
add_cell() {
    # shellcheck disable=SC2053 # a pattern
    [[ $1 == $match ]] || return 0
    cell_names+=("$1") cell_evals+=('')
    cell_trains+=("$(quoted "${@:2}" ${configs[@]+"${configs[@]}"} ${sets[@]+"${sets[@]}"})")
}

# evaluate COMMAND ARGUMENTS…: a command on the trained run (eval, soup) for every cell that has none yet.
evaluate() {
    local at
    for ((at = 0; at < ${#cell_names[@]}; at++)); do
        [[ -n ${cell_evals[at]} ]] || cell_evals[at]="$(quoted "$@")"$'\n'
    done
}

# cycled RATES N: a TOML array of N.
cycled() {
    local all cycle=() at
    read -ra all <<<"$1"
    for ((at = 0; at < $2; at++)); do cycle+=("${all[at % ${#all[@]}]}"); done
    local IFS=,
    echo "[${cycle[*]}]"
}

# numbers NAME LIST: refuses a list of values that is empty or has anything but numbers.
numbers() {
    local value
    [[ -n ${2// /} ]] || refuse "$1: no values"
    for value in $2; do
        [[ $value =~ ^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$ ]] || refuse "$1: \`$value\` is not a number"
    done
}

gpus() { { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU' || true; }

# Sets devices=(one for each job). A list in CUDA_VISIBLE_DEVICES is respected: cuda:0 is its first.
choose_devices() {
    local found job
    devices=()
    found=$(gpus)
    # An empty list has none, and so have all entries from the first one that is none, such as -1.
    [[ -z ${CUDA_VISIBLE_DEVICES+set} ]] || found=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | awk '/^ *(-|$)/ { exit } { n++ } END { print n + 0 }')
    for ((job = 0; job < jobs; job++)); do
        if [[ -n $device ]]; then
            devices+=("$device")
        elif ((found == 0)); then
            devices+=(cpu)
        else
            ((job < found)) || refuse "--jobs $jobs: there are $found GPUs; fewer jobs, or --device"
            devices+=("cuda:$job")
        fi
    done
}

cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1; }

# Divides the cores among the jobs. A run that is resumed keeps the threads with which it began, so they are a default
# (OMP_NUM_THREADS) and no option; threads that decode images never change a result.
share_cores() {
    local share argument
    ((jobs > 1)) || return 0
    share=$(($(cores) / jobs))
    ((share > 0)) || share=1
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$share}
    for argument in ${passed[@]+"${passed[@]}"}; do
        case $argument in --workers | --workers=*) return 0 ;; esac
    done
    passed+=(--workers "$share")
}

# run_logged LOG COMMAND…: appends the output to LOG; a TERM to this shell reaches the command, which saves and ends.
run_logged() {
    local log=$1 code=0
    shift
    echo "\$ $(quoted "$@")" >>"$log"
    "$@" >>"$log" 2>&1 &
    child=$!
    wait "$child" || code=$?
    child=''
    return "$code"
}

# search_by LOG WHAT ARGUMENTS…: runs `bella sweep` with ARGUMENTS, and sets config= to the config that it chose.
search_by() {
    local log=$1 what=$2
    shift 2
    say "search of $what"
    run_logged "$log" "$bella" sweep "$@" --jobs "$jobs" --out "$out" ${device:+--device "$device"} ${passed[@]+"${passed[@]}"} ||
        { say "the search of $what failed: $(grep '^error' "$log" | tail -n 1) [$log]" && return 1; }
    config=$(sed -n 's/.*on the test split: bella train //p' "$log" | tail -n 1)
    [[ -f $config ]] || { say "the search of $what named no config [$log]" && return 1; }
}

# refuse_unsearched: refuses what needs the cells before anything is searched.
refuse_unsearched() {
    [[ $action == run && -z $rehearse ]] || refuse "--dry-run, --count, --rehearse: cells follow from searches, which only a run makes"
    [[ -z $only ]] || refuse "--cell: cells follow from searches; --methods and --seeds choose among them"
}

# take_config_files: sets config_files=(…), the files of --config without the option.
take_config_files() {
    local word
    config_files=()
    for word in ${configs[@]+"${configs[@]}"}; do [[ $word == --config ]] || config_files+=("$word"); done
}

# rate_of CONFIG: prints the first learning rate of AdamW in a config that a search has chosen.
rate_of() { sed -n '/^\[optimizer.adamw\]/,$s/^lr = //p' "$1" | head -n 1; }

# For a trap: ends the command that runs, and the script.
stop_search() {
    [[ -z ${child:-} ]] || kill -TERM "$child" 2>/dev/null
    wait
    say "stopped; the same command goes on"
    exit 130
}

# note_cost RUN BEGAN: notes the processor seconds of all commands of this shell so far, of which the last one trained RUN, in a file of the
# run, unless the run was finished before the file BEGAN was made. What an interrupted command took is not counted.
note_cost() {
    local cost=$1/processor-seconds.txt
    [[ $1/posterior.safetensors -nt $2 ]] || return 0
    times >"$2"
    # The second line is that of the commands: 1m2.345s 0m1.234s.
    awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, at, "[ms]"); sum += 60 * at[1] + at[2] } print sum }' "$2" >"$cost"
}

# end_by_term: a TERM to this shell of its own reaches the command that run_logged runs, which saves and ends.
end_by_term() {
    child=''
    trap '[[ -z $child ]] || kill -TERM "$child" 2>/dev/null; wait; exit 143' TERM
    trap - EXIT INT
}

# run_cell NUMBER DEVICE, in a shell of its own that ends by TERM. With unevaluated=--no-eval the cell's evaluations are all that there are.
run_cell() {
    local log=$folder/${cell_names[$1]}.log train=() arguments=() start=0 run evaluation
    local common=(--device "$2" --out "$out" ${passed[@]+"${passed[@]}"})
    eval "train=(${cell_trains[$1]})"
    [[ ! -f $log ]] || start=$(wc -c <"$log")
    : >"$log.began"
    run_logged "$log" "$bella" train "${train[@]}" "${common[@]}" ${unevaluated:+"$unevaluated"} || return
    run=$(tail -c "+$((start + 1))" "$log" | sed -n 's/^run: //p' | tail -n 1)
    [[ -d $run ]] || { echo "bella train named no run" >>"$log" && return 1; }
    note_cost "$run" "$log.began"
    rm -f "$log.began"
    # What was evaluated of this run, unless it was trained anew since.
    local known=$run/evaluated.txt
    [[ -f $known && $known -nt $run/posterior.safetensors ]] || : >"$known"
    while IFS= read -r evaluation; do
        if [[ -z $evaluation ]] || grep -qxF -- "$evaluation" "$known"; then continue; fi
        eval "arguments=($evaluation)"
        run_logged "$log" "$bella" "${arguments[0]}" "$run" "${arguments[@]:1}" "${common[@]}" || return
        echo "$evaluation" >>"$known"
    done <<<"${cell_evals[$1]}"
}

# Sets rehearsal=(…): the arguments of bella rehearse for the cell NUMBER.
rehearsal_of() {
    local evaluation train=()
    eval "train=(${cell_trains[$1]})"
    rehearsal=(--name "${cell_names[$1]}" "${train[@]}" ${tiny[@]+"${tiny[@]}"})
    # A cell without evaluations gets none, not the usual one.
    [[ -n ${cell_evals[$1]} ]] || rehearsal+=(--then '')
    while IFS= read -r evaluation; do
        [[ -z $evaluation ]] || rehearsal+=(--then "$evaluation")
    done <<<"${cell_evals[$1]}"
}

# rehearse_cell NUMBER DEVICE, as run_cell. What was found is shown.
rehearse_cell() {
    local log=$folder/${cell_names[$1]}.log rehearsal=() code=0
    rehearsal_of "$1"
    : >"$log"
    run_logged "$log" "$bella" rehearse "${rehearsal[@]}" --device "$2" --out "$out" ${passed[@]+"${passed[@]}"} || code=$?
    sed -n '/^rehearsal /,/^overridden:/p' "$log" | sed '$d'
    return "$code"
}

# run_cells SWEEP: runs, prints or counts the cells; returns 1 if any cell failed.
run_cells() {
    local at first=0 last=${#cell_names[@]}
    ((last > 0)) || refuse "no cells: --match $match fits none"
    if [[ -n $only ]]; then
        ((only <= last)) || refuse "--cell $only: there are $last cells"
        first=$((only - 1)) last=$only
    fi
    case $action in
    count) echo "${#cell_names[@]}" ;;
    dry-run) for ((at = first; at < last; at++)); do print_cell "$at"; done ;;
    run) run_all "$1" "$first" "$last" ;;
    esac
}

print_cell() {
    local common evaluation rehearsal=()
    common="--out $(quoted "$out" ${passed[@]+"${passed[@]}"})"
    echo "# $(($1 + 1)): ${cell_names[$1]}"
    if [[ -n $rehearse ]]; then
        rehearsal_of "$1"
        echo "$bella rehearse $(quoted "${rehearsal[@]}") $common"
        return
    fi
    echo "$bella train ${cell_trains[$1]} $common"
    while IFS= read -r evaluation; do
        [[ -z $evaluation ]] || echo "$bella ${evaluation%% *} RUN${evaluation#"${evaluation%% *}"} $common"
    done <<<"${cell_evals[$1]}"
}

# Jobs take the next cell as soon as they are free: a FIFO holds the numbers of the free ones.
run_all() {
    local at slot failed=0
    choose_devices
    share_cores
    # Logs of rehearsals are not among those of real cells.
    folder=$out${rehearse:+/rehearsal}/sweeps/$1
    mkdir -p "$folder"
    state=$(mktemp -d)
    pids=()
    trap 'rm -rf "$state"' EXIT # state is global: the trap runs after this function
    trap 'stop_cells' INT TERM
    mkfifo "$state/free"
    exec 3<>"$state/free"
    for ((slot = 0; slot < jobs; slot++)); do echo "$slot" >&3; done
    for ((at = $2; at < $3; at++)); do
        until read -rt 1 -u 3 slot; do :; done # wakes up for signals
        say "$((at + 1))/${#cell_names[@]} ${cell_names[at]} on ${devices[slot]}"
        (
            exec 4>&3 3<&-
            end_by_term
            code=0
            if [[ -n $rehearse ]]; then rehearse_cell "$at" "${devices[slot]}"; else run_cell "$at" "${devices[slot]}"; fi ||
                code=$?
            echo "$code" >"$state/$at"
            echo "$slot" >&4
        ) &
        pids+=("$!")
    done
    wait
    for ((at = $2; at < $3; at++)); do
        [[ $(cat "$state/$at" 2>/dev/null) == 0 ]] || failed=$((failed + 1))
    done
    summary "$state" "$2" "$3" "$failed"
    rm -rf "$state"
    ((failed == 0)) || return 1
}

stop_cells() {
    trap '' INT TERM
    say "stopping; the same command goes on"
    kill -TERM ${pids[@]+"${pids[@]}"} 2>/dev/null || true
    wait
    exit 130
}

# summary STATE FIRST LAST FAILED
summary() {
    local at code
    local where="rows: $out/*.csv, tables: $bella report $out"
    [[ -z $rehearse ]] || where="rehearsals: $out/rehearsal/rehearsal.csv"
    say "$(($3 - $2 - $4)) of $(($3 - $2)) cells done; $where"
    (($4 == 0)) || say "failed, with the last line of the log:"
    for ((at = $2; at < $3; at++)); do
        code=$(cat "$1/$at" 2>/dev/null) || code='no exit code'
        [[ $code == 0 ]] || say "  ${cell_names[at]} ($code): $(tail -n 1 "$folder/${cell_names[at]}.log") [$folder/${cell_names[at]}.log]"
    done
}
