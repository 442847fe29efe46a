"""What each operator's real CUDA kernel takes, as C++ tables, from the file that libtorch itself is generated from.

    python3 rules.py native_functions.yaml > rules.inc
"""

import re
import sys


def operators(lines):
    """Every operator's dispatch keys, whether its devices are checked, and the operator whose kernel it has."""
    found, name = {}, None
    for line in lines:
        if match := re.match(r"- func: ([\w.]+)\(", line):
            name = match[1]
            found[name] = {"keys": set(), "nocheck": False, "delegate": None}
        elif match := re.match(r"  structured_delegate: ([\w.]+)", line):
            found[name]["delegate"] = match[1]
        elif re.match(r"  device_check: NoCheck", line):
            found[name]["nocheck"] = True
        elif match := re.match(r"    ([A-Z][\w, ]*):", line):
            found[name]["keys"] |= {key.strip() for key in match[1].split(",")}
    return found


def composite(keys):
    return any(key.startswith("Composite") for key in keys)


TABLES = {
    "NO_CHECK": lambda operator, keys: operator["nocheck"],
    "OWN_KERNEL": lambda operator, keys: "CUDA" in keys and composite(keys),
    "NO_KERNEL": lambda operator, keys: "CPU" in keys and "CUDA" not in keys and not composite(keys),
}


def main():
    with open(sys.argv[1]) as file:
        found = operators(file)
    for table, chosen in TABLES.items():
        print(f"static const char* const {table}[] = {{")
        for name, operator in found.items():
            kernel = found[operator["delegate"]] if operator["delegate"] else operator
            if chosen(operator, kernel["keys"]):
                print(f'    "aten::{name}",')
        print("};")


if __name__ == "__main__":
    main()
