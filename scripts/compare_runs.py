"""Compares two recordings of scripts/record_runs.sh: tensors, CSV cells, exports and lists, bit by bit.

    python3 scripts/compare_runs.py before after

Times, rates, memory, versions and hashes of files are left out. Needs numpy and safetensors (onnx graphs and archives are compared by
the bytes of their entries). Exits 1 where anything differs, with a line for each difference.
"""

import argparse
import csv
import sys
import zipfile
from pathlib import Path

from safetensors import safe_open

# What no two runs share, or what follows from it.
VARYING = ("seconds", "memory", "per_second", "commit", "version", "hash", "time", "date", "path", "folder")


def varies(column: str) -> bool:
    return any(word in column for word in VARYING)


def tensors(path: Path) -> dict:
    with safe_open(path, framework="numpy") as file:
        # The progress of a resume file is text that holds times.
        return {name: file.get_tensor(name) for name in file.keys() if name != "progress"}


def same_tensors(a: Path, b: Path):
    one, two = tensors(a), tensors(b)
    if list(sorted(one)) != list(sorted(two)):
        yield f"tensors {sorted(set(one) ^ set(two))}"
        return
    for name, left in one.items():
        right = two[name]
        if left.shape != right.shape or left.dtype != right.dtype or left.tobytes() != right.tobytes():
            apart = "" if left.shape != right.shape else f", at most {abs(left.astype(float) - right.astype(float)).max():.3g} apart"
            yield f"{name} {left.shape} {right.shape}{apart}"


def same_rows(a: Path, b: Path):
    one, two = (list(csv.DictReader(path.open())) for path in (a, b))
    if len(one) != len(two):
        yield f"{len(one)} and {len(two)} rows"
        return
    # Rows are in the order in which they were written, but for what is rewritten in place.
    for number, (left, right) in enumerate(zip(one, two)):
        for column in left.keys() | right.keys():
            if not varies(column) and left.get(column, "") != right.get(column, ""):
                yield f"row {number + 1}, {column}: {left.get(column)} and {right.get(column)}"


def same_entries(a: Path, b: Path):
    one, two = zipfile.ZipFile(a), zipfile.ZipFile(b)
    if one.namelist() != two.namelist():
        yield f"entries {sorted(set(one.namelist()) ^ set(two.namelist()))}"
        return
    for name in one.namelist():
        if one.read(name) != two.read(name):
            yield f"entry {name}"


def same_bytes(a: Path, b: Path):
    if a.read_bytes() != b.read_bytes():
        yield "bytes"


READERS = {".safetensors": same_tensors, ".csv": same_rows, ".pt": same_entries, ".onnx": same_bytes}
LISTS = {"keys.stdout", "list.stdout"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    folders = parser.parse_args()
    compared, differences = 0, 0
    names = {path.relative_to(folders.before) for path in folders.before.rglob("*") if path.is_file()}
    others = {path.relative_to(folders.after) for path in folders.after.rglob("*") if path.is_file()}
    for name in sorted(names | others):
        reader = READERS.get(name.suffix) or (same_bytes if name.name in LISTS else None)
        if reader is None:
            continue
        found = ["only in one"] if name not in names & others else list(reader(folders.before / name, folders.after / name))
        compared += 1
        differences += bool(found)
        for line in found[:5]:
            print(f"{name}: {line}")
    print(f"{compared} files compared, {differences} differ")
    return 1 if differences or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
