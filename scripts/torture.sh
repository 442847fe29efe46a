#!/usr/bin/env bash
# Tortures bella at any size: kills before operations on files, disks that fill up or fail, flipped bits, swapped files, damaged
# inputs, strange targets, mapped files that are cut off, numbers at their edges, and what is no file where a file is read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    printf 'Usage: scripts/torture.sh [OPTIONS]
  --kills N     kills, each before another operation on files of a few tiny commands (default: 1000)
  --faults N    operations that fail for want of space or by an error of the disk (default: 1000)
  --flips N     flipped bits of files that bella wrote (default: 10000)
  --swaps N     swaps of files between runs, and edits of rows, configs and hashes (default: 500)
  --inputs N    damaged inputs of every format (default: 100000)
  --targets N   devices, links, pipes and descriptors as targets of every command that writes or prints (default: 1000)
  --cuts N      mapped files that another program cuts off (default: 1000)
  --numbers N   numbers at their edges in configs and in the files of networks (default: 2000)
  --streams N   pipes, devices, sockets, folders and endless lines where a file is read (default: 1000)
  --seed N      other cases (default: 1)
  --format NAME only damaged inputs of this format, by the name that the counts have, say TorchScript
  --bella PATH  the program that is killed (default: the one that cargo builds for tests)
Counts are printed; any fault fails. Where any of the numbers of cases is given, those that are not given are 0. A kill takes two
commands, about two seconds; a thousand inputs take about a minute; a case of the last four takes one command, about a second.\n'
}

refuse() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}

declare -A cases=([kills]=1000 [faults]=1000 [flips]=10000 [swaps]=500 [inputs]=100000 [targets]=1000 [cuts]=1000 [numbers]=2000
    [streams]=1000)
declare -A given=()
export TORTURE_SEED=1
while (($#)); do
    [[ $1 == --help || $1 == -h ]] && usage && exit 0
    (($# > 1)) || refuse "$1 needs a value"
    case $1 in
    --kills | --faults | --flips | --swaps | --inputs | --targets | --cuts | --numbers | --streams)
        [[ $2 =~ ^[0-9]+$ ]] || refuse "$1 $2: must be a whole number"
        given[${1#--}]=$2
        ;;
    --seed)
        [[ $2 =~ ^[0-9]+$ ]] || refuse "$1 $2: must be a whole number"
        export TORTURE_SEED=$2
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
for name in "${!cases[@]}"; do
    ((${#given[@]})) && cases[$name]=${given[$name]-0}
    declare -x "TORTURE_${name^^}=${cases[$name]}"
done
# shellcheck source=scripts/setup.sh
. scripts/setup.sh
exec cargo test --locked --test torture -- --nocapture --test-threads 1
