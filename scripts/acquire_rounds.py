"""The lists and the table of scripts/acquire_rounds.sh. Needs Python's standard library only.

    python3 scripts/acquire_rounds.py start --pool pool --test test --count 200 --seed 1 start.csv
    python3 scripts/acquire_rounds.py table --out results rows.tsv …
"""

import argparse
import csv
import random
from pathlib import Path

from compare_methods import summary

# Columns of a run's metrics.csv, with what they are multiplied by and the digits shown.
MEASURES = {"accuracy_pm": (100, 1), "nll_pm": (1, 3)}
TITLES = {"accuracy_pm": "accuracy [%]", "nll_pm": "NLL"}
NOTE = """\
Means over seeds ({seeds} in all) ± the half width of the 95 % interval (Student's t). The difference from `random` is taken seed by seed,
with the same first labels; in bold where its interval excludes 0. Predictions are averaged probabilities.
"""


def images(folder):
    """The files of a folder CLASS/IMAGE as (path, class), sorted."""
    found = sorted(path for path in Path(folder).glob("*/*") if path.is_file() and not path.name.startswith("."))
    if not found:
        raise SystemExit(f"error: {folder}: has no images as CLASS/IMAGE")
    return [(path.absolute(), path.parent.name) for path in found]


def start(arguments):
    """Writes the first list: some images of the pool to train on, and those to test on; in the columns of `bella acquire`."""
    pool, test = images(arguments.pool), images(arguments.test)
    if len(pool) < arguments.count:
        raise SystemExit(f"error: --start {arguments.count}: {arguments.pool} has {len(pool)} images: ask for fewer")
    strange = {label for _, label in pool} ^ {label for _, label in test}
    if strange:
        raise SystemExit(f"error: `{min(strange)}` is a class of only one of {arguments.pool} and {arguments.test}")
    first = random.Random(arguments.seed).sample(pool, arguments.count)
    with open(arguments.file, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path", "label", "split", "score", "predicted"])
        writer.writerows([path, label, "test", "", ""] for path, label in test)
        writer.writerows([path, label, "train", "", ""] for path, label in first)


def measured(rows):
    """What was measured by (rule, labels, seed)."""
    found = {}
    for path in (path for path in rows if path.is_file()):
        for line in path.read_text(encoding="utf-8").splitlines():
            rule, seed, labels, run = line.split("\t")
            with open(Path(run) / "metrics.csv", newline="", encoding="utf-8") as file:
                clean = next(row for row in csv.DictReader(file) if row["condition"] == "clean")
            found[rule, int(labels), int(seed)] = {name: float(clean[name]) for name in MEASURES}
    return found


def shown(name, values, signed=""):
    mean, half = summary(values)
    scale, digits = MEASURES[name]
    text = f"{mean * scale:{signed}.{digits}f}" + ("" if half is None else f" ± {half * scale:.{digits}f}")
    return f"**{text}**" if signed and half is not None and abs(mean) > half else text


def lines(found):
    """The rows of the table, and those of the CSV file."""
    rules = ["random", *sorted({rule for rule, _, _ in found} - {"random"})]
    numbers = []
    for labels in sorted({labels for _, labels, _ in found}):
        first = labels == min(labels for _, labels, _ in found)
        for rule in rules[:1] if first else rules:
            seeds = sorted(seed for one, size, seed in found if (one, size) == (rule, labels))
            if not seeds:
                continue  # The rule has not come so far.
            paired = [seed for seed in seeds if ("random", labels, seed) in found]
            row, cells = {"labels": labels, "rule": "–" if first else rule, "seeds": len(seeds)}, []
            for name in MEASURES:
                values = [found[rule, labels, seed][name] for seed in seeds]
                apart = [found[rule, labels, seed][name] - found["random", labels, seed][name] for seed in paired]
                row[name], row[f"{name}_half_width"] = summary(values)
                over = (None, None) if rule == "random" else summary(apart)
                row[f"{name}_over_random"], row[f"{name}_over_random_half_width"] = over
                cells += [shown(name, values), "" if rule == "random" or not apart else shown(name, apart, "+")]
            numbers.append((row, [str(labels), row["rule"], *cells]))
    return [row for row, _ in numbers], [cells for _, cells in numbers]


def table(arguments):
    """Prints and writes the table."""
    found = measured(arguments.rows)
    if not found:
        raise SystemExit(f"error: {arguments.out}: has no finished round of these sizes")
    numbers, cells = lines(found)
    titles = [title for name in MEASURES for title in (TITLES[name], "over random")]
    head = ["labels", "rule", *titles]
    text = ["| " + " | ".join(row) + " |" for row in [head, *cells]]
    text.insert(1, "|--:|---|" + "--:|" * len(titles))
    page = "\n".join(text) + "\n\n" + NOTE.format(seeds=max(row["seeds"] for row in numbers))
    arguments.out.mkdir(parents=True, exist_ok=True)
    with open(arguments.out / "acquire.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(numbers[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in numbers)
    (arguments.out / "acquire.md").write_text(page, encoding="utf-8")
    print(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("start", help="writes the first list")
    first.add_argument("--pool", required=True)
    first.add_argument("--test", required=True)
    first.add_argument("--count", type=int, required=True)
    first.add_argument("--seed", type=int, required=True)
    first.add_argument("file")
    first.set_defaults(run=start)
    rows = commands.add_parser("table", help="writes the table of what was trained")
    rows.add_argument("--out", type=Path, default=Path("results"))
    rows.add_argument("rows", nargs="+", type=Path)
    rows.set_defaults(run=table)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
