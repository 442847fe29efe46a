#!/bin/sh
# Installs a wheel of bella into the Python at hand, with all of torch (full) or with what a processor needs of it (slim).
# Usage: install.sh slim|full WHEEL
set -eu
case $1 in
full) exec pip install --no-cache-dir "$2" ;;
slim)
    pip install --no-cache-dir --no-deps "$2"
    series=$(python3 -c 'import bella; print(bella.SERIES)')
    exec pip install --no-cache-dir --no-deps "torch==$series.*" --requirement "$(dirname "$0")/slim.txt"
    ;;
*)
    echo "error: $1: must be slim or full" >&2
    exit 2
    ;;
esac
