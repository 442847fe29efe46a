"""Compares two results folders: every number of every CSV, and every tensor, as floats."""

import array
import csv
import json
import re
import struct

# Shares of a few hundred samples, and bins, jump where one sample changes sides.
COUNTS = re.compile(r":(ece|classwise_ece|mce|ace|rmsce|accuracy|balanced_accuracy|f1|f1_macro|f1_macro_shown|matthews|auroc|aurc|augrc|coverage|disagreement|top5)_|disagreement")
UNEQUAL = re.compile(r"seconds|per_second|memory|device|bytes|^run$|^row_hash$|flops|_gib|date|peak|commit")
# Signs of gradients that are rounding.
ATTACKED = re.compile("@(fgsm|pgd|mifgsm)")


def tensors(path):
    """The float tensors of a safetensors file."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] in ("F32", "F64"):
            numbers = array.array({"F32": "f", "F64": "d"}[entry["dtype"]])
            start, end = entry["data_offsets"]
            numbers.frombytes(raw[8 + size + start : 8 + size + end])
            yield name, numbers


def files(root):
    return {
        str(file.relative_to(root))
        for file in root.rglob("*")
        if file.suffix in (".csv", ".safetensors") and "cache" not in file.parts
    }


def pairs(name, one, two, found):
    """The cells or tensors of two files that are to agree."""
    if one.suffix == ".csv":
        rows = [list(csv.DictReader(file.open())) for file in (one, two)]
        if len(rows[0]) != len(rows[1]):
            found.append(f"{name}: {len(rows[0])} and {len(rows[1])} rows")
        for left, right in zip(*rows):
            yield from ((f"{name}:{key}", left[key], right[key]) for key in left if key and not UNEQUAL.search(key))
    elif one.name != "resume.safetensors":  # its optimizer states are ratios, which magnify rounding
        left, right = dict(tensors(one)), dict(tensors(two))
        if left.keys() != right.keys():
            found.append(f"{name}: tensors {sorted(left.keys() ^ right.keys())[:4]}")
        yield from ((f"{name}:{key}", left[key], right[key]) for key in left.keys() & right.keys() if not key.endswith("vectors"))


def difference(left, right):
    """The largest relative difference; of tensors, of their root mean squares, since weights follow signs of rounding."""
    if len(left) > 1:

        def norm(values):
            return sum(value * value for value in values if value == value) ** 0.5

        left, right = [norm(left)], [norm(left) + norm([a - b for a, b in zip(left, right)])]
    scale = max([abs(value) for value in left if value == value] + [1e-2])
    (a, b) = (left[0], right[0])
    if a != a or b != b:
        return 0.0 if a != a and b != b else 9.9
    return abs(a - b) / scale


def numbers(left, right):
    """Both as lists of floats; None if they are texts."""
    if not isinstance(left, str):
        return left, right
    try:
        return [float(left)], [float(right)]
    except (TypeError, ValueError):
        return None


def compare(one, two, rough):
    """What differs between two results folders, and the largest difference of numbers with its place."""
    found, worst = [], (0.0, "")
    if files(one) != files(two) and not rough:
        found.append(f"files differ: {sorted(files(one) ^ files(two))[:4]}")
    if not files(one) & files(two):
        found.append("there is nothing to compare")
    for name in sorted(files(one) & files(two)):
        for key, left, right in pairs(name, one / name, two / name, found):
            if left == right or rough and not key.split(":")[1].startswith("nll"):
                continue
            both = numbers(left, right)
            if both is None or len(both[0]) != len(both[1]):
                found.append(f"{key}: {str(left)[:30]!r} and {str(right)[:30]!r}")
                continue
            bad = difference(*both) * (0.01 if COUNTS.search(key) else 1.0) * (0.1 if ATTACKED.search(key) else 1.0)
            worst = max(worst, (bad, key))
    return found, worst
