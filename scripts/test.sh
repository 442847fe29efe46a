#!/usr/bin/env bash
# Sets up libtorch and passes the tests; arguments go to the test runner (./scripts/test.sh svgd).
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

if cargo nextest --version >/dev/null 2>&1; then
    exec cargo nextest run --locked "$@"
fi
exec cargo test --locked "$@"
