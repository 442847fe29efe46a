#!/usr/bin/env bash
# Checks the build tools, finds or installs libtorch 2.11, and writes its path to .cargo/config.toml.
# Run it (./scripts/setup.sh) or source it, which also leaves the caller in the repository root.
# BELLA_LIBTORCH_SET=slim|full overrides the choice made by looking for an NVIDIA GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TORCH_SERIES="2.11" TORCH_VERSION="2.11.0"
readonly CONFIG=".cargo/config.toml"
readonly MARKER="# Written by scripts/setup.sh; edits are lost."

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    printf 'setup: error: %s\n' "$*" >&2
    exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# at_least FOUND WANTED, both MAJOR.MINOR.
at_least() {
    ((${1%%.*} > ${2%%.*} || (${1%%.*} == ${2%%.*} && ${1##*.} >= ${2##*.})))
}

check_build_tools() {
    local wanted found answer
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    has cargo || die "cargo was not found; install Rust $wanted or newer (https://rustup.rs)"
    answer=$(cargo --version 2>&1) || die "cargo does not run: ${answer%%$'\n'*}"
    found=$(sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p' <<<"$answer")
    [[ -n $found ]] || die "cargo --version answered \`${answer%%$'\n'*}\`, not a version"
    at_least "$found" "$wanted" || die "cargo $found is too old, $wanted or newer is needed; run \`rustup update\`"
    has "${CC:-cc}" || die "no C compiler (\`${CC:-cc}\`), which Rust links with; install gcc or clang"
    has "${CXX:-c++}" || die "no C++ compiler (\`${CXX:-c++}\`), which torch-sys needs; install g++ or clang"
    if [[ $(uname -s) == Linux && $("${CC:-cc}" -print-file-name=libgomp.so) != /* ]]; then
        die "the C compiler has no OpenMP library (libgomp.so); install gcc, or libgomp for your compiler"
    fi
}

# The version of the libtorch in folder $1; empty when it is none. Wheels carry no build-version.
libtorch_version() {
    if [[ -r $1/build-version ]]; then
        head -n 1 "$1/build-version"
    elif [[ -r $1/version.py ]]; then
        sed -n "s/^__version__ *= *['\"]\(.*\)['\"].*/\1/p" "$1/version.py"
    elif [[ -r $1/include/torch/headeronly/version.h ]]; then
        sed -n 's/^ *"\([0-9][^"]*\)".*/\1/p' "$1/include/torch/headeronly/version.h"
    fi
}

is_series() { [[ ${1%%+*} == "$TORCH_SERIES" || $1 == "$TORCH_SERIES".* ]]; }

# Prints why folder $1 cannot be built against; nothing when it can.
libtorch_fault() {
    local version missing library="$1/lib/libtorch_cpu.so"
    [[ $(uname -s) == Darwin ]] && library="$1/lib/libtorch_cpu.dylib"
    version=$(libtorch_version "$1")
    if [[ -z $version ]]; then
        echo "holds no libtorch (no build-version, version.py or version.h)"
    elif ! is_series "$version"; then
        echo "is libtorch $version, but libtorch $TORCH_SERIES is needed"
    elif [[ ! -r $library ]]; then
        echo "has no lib/${library##*/}"
    elif [[ ! -r $1/include/torch/csrc/api/include/torch/torch.h ]]; then
        echo "has no C++ headers (include/torch/csrc/api/include/torch/torch.h)"
    elif has ldd; then
        missing=$(ldd "$library" 2>/dev/null | awk '/not found/ { print $1; exit }')
        [[ -z $missing ]] || echo "has a lib/${library##*/} that does not find $missing"
    fi
}

# The torch package of the active Python, found without importing it.
python_torch() {
    has python3 || return 0
    python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(*(s.submodule_search_locations or [])[:1] if s else "")' 2>/dev/null || true
}

config_libtorch() {
    [[ -r $CONFIG ]] || return 0
    sed -n 's/^ *LIBTORCH *= *\({ *value *= *\)\{0,1\}["'"'"']\([^"'"'"']*\)["'"'"'].*/\2/p' "$CONFIG" | head -n 1
}

config_is_ours() { [[ ! -e $CONFIG ]] || grep -qxF "$MARKER" "$CONFIG"; }

has_gpu() { [[ -e /dev/nvidia0 ]] || { has nvidia-smi && nvidia-smi -L >/dev/null 2>&1; }; }

# Sets wanted=(slim or full).
choose_set() {
    wanted=${BELLA_LIBTORCH_SET:-}
    case $wanted in
    slim | full) ;;
    "") if has_gpu; then wanted=full; else wanted=slim; fi ;;
    *) die "BELLA_LIBTORCH_SET is \`$wanted\`; known: slim, full" ;;
    esac
}

# Sets pip=(the command of a pip that works), from the active Python or from a venv in folder $1.
find_pip() {
    local found
    has python3 || die "python3 was not found; install Python 3 with venv or pip, or set LIBTORCH to a libtorch $TORCH_SERIES"
    found=$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")') || die "python3 does not run"
    at_least "$found" 3.8 || die "python3 is $found; 3.8 or newer is needed"
    if python3 -m pip --version >/dev/null 2>&1; then
        pip=(python3 -m pip)
    elif python3 -m venv "$1/venv" >/dev/null 2>&1; then
        pip=("$1/venv/bin/python" -m pip)
    else
        die "python3 has neither pip nor venv; install them (Debian, Ubuntu: apt install python3-venv)"
    fi
}

check_disk() {
    local set=$1 need_gb=3 free_kb
    [[ $set == full ]] && need_gb=8
    free_kb=$(df -Pk . | awk 'END { print $4 }') || die "df could not tell the free disk space of $PWD"
    ((free_kb >= need_gb * 1000 * 1000)) ||
        die "$((free_kb / 1000)) MB free in $PWD, the $set libtorch needs $need_gb GB; free some, or set LIBTORCH to a libtorch $TORCH_SERIES"
}

# Installs set $1 (slim or full) as .libtorch/$1. The folder gets its name only when it is complete.
install_libtorch() {
    local set=$1 other packages=("torch==$TORCH_VERSION") pip=()
    check_disk "$set"
    mkdir -p .libtorch
    for other in .libtorch/partial.*; do # left by an interrupted set-up
        [[ -d $other ]] && ! kill -0 "${other##*.}" 2>/dev/null && rm -rf "$other"
    done
    partial="$PWD/.libtorch/partial.$$"
    trap 'rm -rf "$partial"' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$partial/tmp"
    find_pip "$partial"
    [[ $set == slim ]] && packages+=(--no-deps --requirement scripts/container/slim.txt)
    say "installing libtorch $TORCH_VERSION ($set set) into $PWD/.libtorch/$set with pip; this takes a few minutes"
    # Only the libraries are used, never imported: any Python's wheel serves, so one that exists is named.
    TMPDIR="$partial/tmp" PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "${pip[@]}" install --no-input --only-binary=:all: --python-version 3.12 \
        --target "$partial/site" "${packages[@]}" >&2 ||
        die "pip could not install libtorch $TORCH_VERSION (its message is above); run this again, or set LIBTORCH"
    [[ -d .libtorch/$set ]] || mv "$partial/site" ".libtorch/$set"
    rm -rf "$partial"
    trap - EXIT INT TERM HUP
}

# Sets libtorch=(its folder): $LIBTORCH, the one recorded, the active Python's, our own, or a new one.
find_libtorch() {
    local fault set=$wanted
    if [[ -n ${LIBTORCH:-} ]]; then
        libtorch=${LIBTORCH%/}
        [[ $libtorch == /* ]] || die "LIBTORCH is \`$LIBTORCH\`; it must be an absolute path"
        fault=$(libtorch_fault "$libtorch")
        [[ -z $fault ]] || die "LIBTORCH: $libtorch $fault; unset LIBTORCH to have one found or installed"
        return
    fi
    libtorch=$(config_libtorch)
    if [[ -n $libtorch ]]; then
        fault=$(libtorch_fault "$libtorch")
        if [[ -z $fault && ($libtorch != "$PWD/.libtorch/slim/torch" || $wanted == slim) ]]; then return; fi
        config_is_ours || [[ -z $fault ]] || die "$CONFIG: LIBTORCH = \"$libtorch\" $fault; correct or remove that line"
    fi
    libtorch=$(python_torch)
    if [[ -n $libtorch ]]; then
        fault=$(libtorch_fault "$libtorch")
        [[ -n $fault ]] || return 0
        say "not used: $libtorch $fault"
    fi
    # The full set also serves a machine whose GPU is not seen just now.
    [[ $set == slim && -d .libtorch/full ]] && set=full
    if [[ -d .libtorch/$set && -n $(libtorch_fault "$PWD/.libtorch/$set/torch") ]]; then rm -rf ".libtorch/$set"; fi
    [[ -d .libtorch/$set ]] || install_libtorch "$set"
    libtorch="$PWD/.libtorch/$set/torch"
    fault=$(libtorch_fault "$libtorch")
    [[ -z $fault ]] || die "$libtorch $fault; remove $PWD/.libtorch and run this again"
}

write_config() {
    [[ $(config_libtorch) == "$libtorch" ]] && return
    [[ $libtorch != *[\"\\]* ]] || die "$libtorch: the path has a quote or a backslash; move it to a plain path"
    if ! config_is_ours && [[ -n ${LIBTORCH:-} ]]; then return; fi # cargo prefers the variable
    config_is_ours ||
        die "$CONFIG is yours and has no LIBTORCH = \"$libtorch\"; set that under its [env] and run this again"
    mkdir -p .cargo
    printf '%s\n[env]\nLIBTORCH = "%s"\n' "$MARKER" "$libtorch" >"$CONFIG.$$"
    mv "$CONFIG.$$" "$CONFIG"
    say "wrote $PWD/$CONFIG"
}

# It would make torch-sys import torch, which the slim set cannot.
unset LIBTORCH_USE_PYTORCH
check_build_tools
choose_set
find_libtorch
write_config
say "libtorch $(libtorch_version "$libtorch") in $libtorch"
if [[ $wanted == full && $(uname -s) == Linux && ! -e $libtorch/lib/libtorch_cuda.so ]]; then
    say "this libtorch has no CUDA, so the GPU will not be used"
fi
