#!/usr/bin/env bash
# Every comparison of results/speed.md in one go, about a quarter of an hour on an otherwise idle machine of two cores.
# Needs a Python with torch (PYTHON=python3). THREADS=1 on a shared machine, where processor seconds are what to read.
# Usage: scripts/bench_all.sh [COMPARISONS, such as step,memory]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release
exec "${PYTHON:-python3}" scripts/bench_compare.py --bella target/release/bella --threads "${THREADS:-$(getconf _NPROCESSORS_ONLN)}" \
    --rounds "${ROUNDS:-3}" ${1:+--only "$1"}
