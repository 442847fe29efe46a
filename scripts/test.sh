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

# The unit tests take milliseconds each, and a process of its own would load libtorch for a third of a second before each of them. So processes of
# one thread take a share of them each, since the random numbers that a test seeds are those of its process. The shares are the same on every
# machine, so that a test meets the same ones before it.
readonly SHARES=8
unit_tests() {
    local share
    cargo test --locked --quiet --lib -- --list --format terse | sed -n 's/: test$//p' >"$lists/all"
    [[ -s $lists/all ]] || return 1
    for ((share = 0; share < SHARES; share++)); do
        awk -v share="$share" -v shares="$SHARES" 'NR % shares == share' "$lists/all" >"$lists/$share"
    done
    export -f take_share
    seq 0 $((SHARES - 1)) | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} bash -c 'take_share "$0/{}"' "$lists"
}

# take_share LIST: passes the listed tests, and prints what they print when all have ended.
take_share() {
    local failed=0
    xargs cargo test --locked --quiet --lib -- --exact --test-threads 1 <"$1" >"$1.log" 2>&1 || failed=1
    cat "$1.log"
    return "$failed"
}

cargo nextest run --locked --no-run
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
unit_tests
cargo nextest run --locked -E 'not kind(lib)'
