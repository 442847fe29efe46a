#!/usr/bin/env python3
"""Writes the WordNet numbers of the classes of ImageNet-A and ImageNet-R from the evaluation code of their authors.

    python scripts/make_imagenet_subsets.py natural-adv-examples/eval.py imagenet-r/eval.py

The files are those of github.com/hendrycks/natural-adv-examples (commit 07770705658c3a1c8acce31fd9dbd68f06e297c3, MIT) and
github.com/hendrycks/imagenet-r (commit 3131cacee97c407bd2ecea15846a67817a64f924, MIT). Their lists are read as data; nothing in
them is run. Writes assets/imagenet_a.txt and assets/imagenet_r.txt, a number a line, in the order of the labels, and for the tests
the places of ImageNet-A's classes among the thousand (`indices_in_1k`).
"""

import ast
import sys
from pathlib import Path

ASSETS = Path(__file__).parent.parent / "assets"


def value(tree, name):
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    sys.exit(f"no {name} in the file")


def main():
    a, r = [ast.parse(Path(file).read_text()) for file in sys.argv[1:3]]
    wnids = value(r, "all_wnids")
    named = [line.split("\t")[0] for line in (ASSETS / "imagenet_names.txt").read_text().splitlines()]
    assert wnids == named and wnids == sorted(wnids)
    kept = [place for place, label in value(a, "thousand_k_to_200").items() if label != -1]
    assert [value(a, "thousand_k_to_200")[place] for place in kept] == list(range(200))
    rows = [" ".join(map(str, kept[start : start + 20])) for start in range(0, 200, 20)]
    (ASSETS.parent / "tests/fixtures/data/imagenet_a_places.txt").write_text("\n".join(rows) + "\n")
    in_r = value(r, "imagenet_r_wnids")
    for name, classes in [("a", [wnids[place] for place in kept]), ("r", [wnid for wnid in wnids if wnid in in_r])]:
        assert len(classes) == 200
        (ASSETS / f"imagenet_{name}.txt").write_text("".join(f"{wnid}\n" for wnid in classes))


if __name__ == "__main__":
    main()
