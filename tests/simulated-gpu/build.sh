#!/usr/bin/env bash
# Builds the simulated GPU and its self-test for the project's own libtorch, if they are not there yet, and prints the library
# for LD_PRELOAD.
# Exit code 3 with a line on stderr: this machine cannot build it. Usage: build.sh [LIBTORCH] [DEST]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
torch=${1:-${LIBTORCH:-$(sed -n 's/^LIBTORCH = "\(.*\)"/\1/p' "$root/.cargo/config.toml" 2>/dev/null || true)}}
dest=${2:-$root/target/simulated-gpu}
rules=$torch/../torchgen/packaged/ATen/native/native_functions.yaml

cannot() {
    echo "simulated GPU: SKIPPED: $*" >&2
    exit 3
}
[[ $(uname -sm) == "Linux x86_64" || $(uname -sm) == "Linux aarch64" ]] || cannot "it is for Linux on x86-64 and AArch64"
CXX=${CXX:-c++}
command -v "$CXX" >/dev/null || cannot "there is no C++ compiler (\`$CXX\`)"
command -v python3 >/dev/null || cannot "there is no python3"
[[ -r $torch/include/ATen/ATen.h ]] || cannot "libtorch in \`$torch\` has no headers (run scripts/setup.sh)"
[[ -r $rules ]] || cannot "libtorch in \`$torch\` comes without torchgen (a wheel has it), whose table says what each kernel takes"
"$CXX" -std=c++20 -fsyntax-only -x c++ - <<<'#include <version>' 2>/dev/null || cannot "\`$CXX\` does not know C++20"

mkdir -p "$dest"
exec 8>"$dest/.lock"
flock 8
wanted=$(cat "$here"/*.cpp "$here"/rules.py "$rules" | cksum)" $torch $("$CXX" --version | head -n 1)"
if [[ ! -e $dest/built || $(<"$dest/built") != "$wanted" ]]; then
    echo "simulated GPU: building it in $dest" >&2
    rm -f "$dest/built"
    python3 "$here/rules.py" "$rules" >"$dest/rules.inc"
    flags=(-std=c++20 -O0 -fPIC -shared -Wall -Wextra -Wno-unused-parameter)
    "$CXX" "${flags[@]}" "$here/preload.cpp" -o "$dest/libsimulated_gpu_preload.so" -ldl
    # shellcheck disable=SC2054 # the linker's own comma
    libtorch=(-isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include"
        -L "$torch/lib" -ltorch_cpu -lc10 -Wl,-rpath,"$torch/lib")
    "$CXX" -std=c++20 -O0 "$here/selftest.cpp" -o "$dest/selftest" "${libtorch[@]}" -ldl &
    "$CXX" "${flags[@]}" -I "$dest" "$here/device.cpp" -o "$dest/libsimulated_gpu.so" "${libtorch[@]}"
    wait $!
    echo "$wanted" >"$dest/built"
fi
echo "$dest/libsimulated_gpu_preload.so"
