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

# Most tests take milliseconds, and a process of its own would load libtorch for a third of a second before each of them. So processes of one
# thread take a share of them each, since the random numbers that a test seeds are those of its process. The shares are the same on every
# machine, so that a test meets the same ones before it.
readonly SHARES=8
shared_tests() {
    local target share
    for target in "$@"; do
        # shellcheck disable=SC2086 # a target is one or two words
        cargo test --locked --quiet $target -- --list --format terse | sed -n 's/: test$//p' >"$lists/all"
        [[ -s $lists/all ]] || return 1
        for ((share = 0; share < SHARES; share++)); do
            awk -v share="$share" -v shares="$SHARES" 'NR % shares == share' "$lists/all" >"$lists/$target $share"
        done
    done
    rm "$lists/all"
    export -f take_share
    find "$lists" -type f -print0 | sort -z | xargs -0 -P "$(getconf _NPROCESSORS_ONLN)" -I{} bash -c 'take_share "$0"' {}
}

# take_share LIST: passes the listed tests of the target in the list's name, and prints what they print when all have ended.
take_share() {
    local failed=0 target
    target=$(basename "${1% *}")
    # shellcheck disable=SC2086 # a target is one or two words
    xargs cargo test --locked --quiet $target -- --exact --test-threads 1 <"$1" >"$1.log" 2>&1 || failed=1
    cat "$1.log"
    return "$failed"
}

cargo nextest run --locked --no-run
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
shared_tests --lib '--test library' '--test commands'
cargo nextest run --locked -E 'not (kind(lib) | binary(library) | binary(commands))'
