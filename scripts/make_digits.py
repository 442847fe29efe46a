#!/usr/bin/env python3
"""Make assets/digits.bin: the UCI handwritten digits as one binary file.

1,797 records of 1 label byte (0..9) and 64 pixel bytes (8x8, row by row, 0..16 scaled to 0..255), in scikit-learn's
order.
Needs: scikit-learn, numpy.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

DARKEST = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parent.parent / "assets" / "digits.bin"
    parser.add_argument("--out", type=Path, default=default, help="file to write (default: assets/digits.bin)")
    path = parser.parse_args().out

    digits = load_digits()
    pixels = np.rint(digits.data * 255 / DARKEST).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.column_stack([labels, pixels]).tobytes())
    print(f"{path}  {path.stat().st_size} bytes, {len(labels)} images, per class {np.bincount(labels).tolist()}")


if __name__ == "__main__":
    main()
