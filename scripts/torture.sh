#!/usr/bin/env bash
# Tortures bella at any size: kills before operations on files, disks that fill up or fail, flipped bits, swapped files, damaged inputs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    printf 'Usage: scripts/torture.sh [OPTIONS]
  --kills N     kills, each before another operation on files of a few tiny commands (default: 1000)
  --faults N    operations that fail for want of space or by an error of the disk (default: 1000)
  --flips N     flipped bits of files that bella wrote (default: 10000)
  --swaps N     swaps of files between runs, and edits of rows, configs and hashes (default: 500)
  --inputs N    damaged inputs of every format (default: 100000)
  --seed N      other cases (default: 1)
  --format NAME only damaged inputs of this format, by the name that the counts have, say TorchScript
  --bella PATH  the program that is killed (default: the one that cargo builds for tests)
Counts are printed; any fault fails. A kill takes two commands, about two seconds; a thousand inputs take about a minute.\n'
}

refuse() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}

export TORTURE_KILLS=1000 TORTURE_FAULTS=1000 TORTURE_FLIPS=10000 TORTURE_SWAPS=500 TORTURE_INPUTS=100000 TORTURE_SEED=1
while (($#)); do
    [[ $1 == --help || $1 == -h ]] && usage && exit 0
    (($# > 1)) || refuse "$1 needs a value"
    case $1 in
    --kills | --faults | --flips | --swaps | --inputs | --seed)
        [[ $2 =~ ^[0-9]+$ ]] || refuse "$1 $2: must be a whole number"
        name=${1#--}
        declare -x "TORTURE_${name^^}=$2"
        ;;
    --format) export TORTURE_FORMAT=$2 ;;
    --bella)
        [[ -x $2 ]] || refuse "--bella $2: no such program"
        TORTURE_BELLA=$(realpath "$2")
        export TORTURE_BELLA
        ;;
    *) refuse "unknown argument \`$1\`; --help tells what is known" ;;
    esac
    shift 2
done
# shellcheck source=scripts/setup.sh
. scripts/setup.sh
exec cargo test --locked --test torture -- --nocapture --test-threads 1
