#!/usr/bin/env bash
# Runs bella on a simulated GPU and compares every result with the CPU's. Needs no GPU, only the project's own libtorch with its
# headers and a C++ compiler; where they do not suffice, one line says that the cases were skipped, and why.
#
#   tests/simulated-gpu/run.sh                    all cases, more than a hundred, a quarter of an hour on two cores
#   tests/simulated-gpu/run.sh ci                 the set that CI runs
#   tests/simulated-gpu/run.sh cases 'svgd-.*'    some cases, by patterns of their names (cases.py)
#   tests/simulated-gpu/run.sh tests --test library ivon::  integration tests with their commands on the simulated GPU
#   tests/simulated-gpu/run.sh with COMMAND…      any command; every bella in it sees the GPU
#
# BELLA=FILE: the program (default: target/debug/bella, built first). JOBS=2: cases at a time.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
what=${1:-all}
shift $(($# > 0 ? 1 : 0))

preload=$("$here/build.sh") || {
    code=$?
    ((code == 3)) && [[ $what == ci ]] && exit 0 # the line has been said
    exit "$code"
}
case $what in
with) exec env LD_PRELOAD="$preload" "$@" ;;
tests)
    runner=(cargo test)
    cargo nextest --version >/dev/null 2>&1 && runner=(cargo nextest run)
    BELLA_TEST_DEVICE=cuda BELLA_TEST_PRELOAD=$preload exec "${runner[@]}" --locked "$@"
    ;;
all | ci | cases) ;;
*)
    echo "error: \`$what\`: all, ci, cases, tests or with (the head of $here/run.sh says what they do)" >&2
    exit 2
    ;;
esac

"${preload%/*}/selftest" "${preload%/*}/libsimulated_gpu.so"
if [[ -z ${BELLA:-} ]]; then
    cargo build --quiet --locked
    BELLA=target/debug/bella
fi
options=(--binary "$BELLA" --preload "$preload" --out "${preload%/*}/cases" --jobs "${JOBS:-2}")
[[ $what == ci ]] && options+=(--set ci)
PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/run.py" "${options[@]}" "$@"
