#!/usr/bin/env python3
"""Check bella's tokenizer against open_clip's: 1,000 ImageNet class names, and odd texts, in every built-in template.

Runs `bella tokenize` on the prompts and compares token by token with open_clip's tokenizer at context 77.
Needs: open_clip_torch. Exit code 1 where any text differs.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTEXT = 77
ODD_NAMES = [
    "",
    "colt's foot",
    "crème brûlée",
    "it’s “quoted”",
    "rock &amp; roll &amp;amp; caf&eacute;",
    "ofﬁce ﬂag",
    "ＡＢＣ！",
    "日本語 のテスト 12345",
    "emoji 😀 ok",
    "snoopy (cartoon beagle)!!! ...",
    "polka-dotted_thing/1.5",
    "İstanbul ΑΣ",
    "very " * 100 + "long",
]


def prompts():
    templates = tomllib.loads((ROOT / "assets/prompts.toml").read_text())
    lines = (ROOT / "assets/imagenet_names.txt").read_text().splitlines()
    names = [line.split("\t")[1] for line in lines] + ODD_NAMES
    distinct = {template: None for entry in templates.values() for template in entry["templates"]}
    return [template.replace("{}", name) for template in distinct for name in names]


def ours(binary, texts):
    command = [binary, "tokenize", "--context", str(CONTEXT)]
    result = subprocess.run(command, input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    return [[int(token) for token in line.split()] for line in result.stdout.splitlines()]


def theirs(texts):
    import open_clip

    rows = open_clip.tokenize(texts, context_length=CONTEXT)
    ends = rows.argmax(dim=1)  # the end of a text is the largest token
    return [row[: end + 1].tolist() for row, end in zip(rows, ends)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bella", default=str(ROOT / "target/release/bella"), help="the binary")
    args = parser.parse_args()

    texts = prompts()
    found, expected = ours(args.bella, texts), theirs(texts)
    if len(found) != len(texts):
        sys.exit(f"{len(texts)} texts, but {len(found)} lines of tokens")
    differing = [text for text, a, b in zip(texts, found, expected) if a != b]
    for text in differing[:10]:
        print(f"differs: {text!r}")
    tokens = sum(map(len, expected))
    print(f"{len(texts)} texts, {tokens} tokens, {len(differing)} texts differ")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
