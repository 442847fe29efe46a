#!/usr/bin/env bash
# Everything to run the first time that a real GPU is at hand, in one command of at most eight minutes: the cases of
# tests/simulated-gpu against the CPU, resumed runs, Table 2 of the Bella paper with memory, PyTorch's loop and its batched form
# beside bella, the image pipeline, and --jobs. Writes a report in Markdown, with every command and its log beside it.
# Needs no network and no compiler: bella as it was built elsewhere, and the libtorch of a Python with torch 2.11.
#
# Usage: scripts/gpu_suite.sh [OPTIONS]
#   --bella FILE       the program (default: $BELLA, bella beside this folder, target/release/bella, or bella of the PATH)
#   --python FILE      a Python with torch (default: $PYTHON or python3); its libtorch is used unless LIBTORCH is set
#   --images FOLDER    photographs for the image pipeline (default: made ones)
#   --device DEVICE    cuda or cuda:N (default: cuda)
#   --minutes M        for the whole suite (default: 8); what does not fit is named in the report
#   --out FOLDER       for the report and the logs (default: results/gpu)
#   --simulated        on the simulated GPU, with small sizes: shows that the suite runs, times nothing (builds with a compiler)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}
bella=${BELLA:-} python=${PYTHON:-python3} out=results/gpu simulated='' passed=()
while (($#)); do
    case $1 in
    --simulated) simulated=yes && shift && continue ;;
    --help | -h) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit 0 ;;
    --bella | --python | --out | --images | --device | --minutes) (($# > 1)) || die "$1 needs a value" ;;
    *) die "unknown option $1 (--help lists what there is)" ;;
    esac
    case $1 in
    --bella) bella=$2 ;;
    --python) python=$2 ;;
    --out) out=$2 ;;
    *) passed+=("$1" "$2") ;;
    esac
    shift 2
done
mkdir -p "$out" && out=$(cd "$out" && pwd)

find_bella() {
    local file
    [[ -z $bella || -x $bella ]] || die "--bella $bella: there is no such program"
    for file in "$bella" "$root/bella" "$root/target/release/bella" "$(command -v bella || true)"; do
        [[ -n $file && -x $file ]] && realpath "$file" && return
    done
    die "there is no bella: --bella FILE, or copy it to $root/bella (cargo build --release makes it)"
}
command -v "$python" >/dev/null || die "there is no $python: --python FILE"
bella=$(find_bella)
torch=${LIBTORCH:-}
if [[ -z $torch ]]; then # found without importing it
    torch=$("$python" -c 'import importlib.util as u; s = u.find_spec("torch"); print(*(s.submodule_search_locations or [])[:1] if s else "")')
fi
[[ -z $torch || ! -e $torch/lib/libtorch_cpu.so ]] || export LD_LIBRARY_PATH="$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$bella" --version >/dev/null 2>&1 ||
    die "$bella does not start ($("$bella" --version 2>&1 | head -n 1)); it needs libtorch 2.11: LIBTORCH=FOLDER, or --python FILE"
if [[ $simulated ]]; then
    preload=$("$root/tests/simulated-gpu/build.sh") || exit
    passed+=(--preload "$preload")
fi
cd "$root"
PYTHONDONTWRITEBYTECODE=1 exec "$python" scripts/gpu_suite.py --bella "$bella" --out "$out" "${passed[@]}"
