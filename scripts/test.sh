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

# test_programs TARGET…: prints the paths of the programs of these tests, which have been built.
test_programs() {
    cargo test --locked --no-run --color never "$@" 2>&1 | sed -n 's/^ *Executable .* (\(.*\))$/\1/p'
}

# shared_tests PROGRAM…: passes the tests of these programs. They are started without Cargo, which would look for each share again whether
# they are up to date.
shared_tests() {
    local program share
    for program in "$@"; do
        "$program" --list --format terse | sed -n 's/: test$//p' >"$lists/all"
        [[ -s $lists/all ]] || return 1
        for ((share = 0; share < SHARES; share++)); do
            {
                printf '%s\n' "$program" --exact --test-threads=1
                awk -v share="$share" -v shares="$SHARES" 'NR % shares == share' "$lists/all"
            } >"$lists/${program##*/} $share"
        done
    done
    rm "$lists/all"
    export -f take_share
    # Shares of the unit tests, which end soonest, come last, so that no core waits long for another one's last share.
    find "$lists" -type f -print0 | sort -rz | xargs -0 -P "$(getconf _NPROCESSORS_ONLN)" -I{} bash -c 'take_share "$0"' {}
}

# take_share LIST: runs the command line in LIST, a word a line, and prints what it prints when it has ended.
take_share() {
    local failed=0
    xargs -d "\n" env <"$1" >"$1.log" 2>&1 || failed=1
    cat "$1.log"
    return "$failed"
}

cargo nextest run --locked --no-run
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
mapfile -t programs < <(test_programs --lib --test library --test commands)
((${#programs[@]} == 3)) || { echo "scripts/test.sh: cargo test --no-run names ${#programs[@]} of 3 programs of tests" >&2 && exit 1; }
shared_tests "${programs[@]}"
cargo nextest run --locked -E 'not (kind(lib) | binary(library) | binary(commands))'
