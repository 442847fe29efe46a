#!/usr/bin/env bash
# Sets up libtorch and passes the tests; arguments go to the test runner (./scripts/test.sh svgd).
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# Tests run side by side, each on one thread unless it asks for more: threads that spin while they wait keep cores from other tests.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

if ! cargo nextest --version >/dev/null 2>&1; then
    exec cargo test --locked "$@"
fi
(($#)) && exec cargo nextest run --locked "$@"

# The unit tests take milliseconds each, and a process of its own would load libtorch for a third of a second before each of them. So each
# core has one process for its share, of one thread, since the random numbers that a test seeds are those of its process.
unit_tests() {
    local cores number processes=() failed=0
    cores=$(getconf _NPROCESSORS_ONLN)
    cargo test --locked --quiet --lib -- --list --format terse | sed -n 's/: test$//p' >"$lists/all"
    [[ -s $lists/all ]] || return 1
    for ((number = 0; number < cores; number++)); do
        awk -v number="$number" -v cores="$cores" 'NR % cores == number' "$lists/all" >"$lists/$number"
        xargs cargo test --locked --quiet --lib -- --exact --test-threads 1 <"$lists/$number" >"$lists/$number.log" 2>&1 &
        processes+=($!)
    done
    for ((number = 0; number < cores; number++)); do
        wait "${processes[number]}" || failed=1
        cat "$lists/$number.log"
    done
    return "$failed"
}

cargo nextest run --locked --no-run
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
unit_tests
cargo nextest run --locked -E 'not kind(lib)'
