"""The table of scripts/compare_methods.sh: one row a method, means over seeds with 95 % intervals (Student's t), and marks where
the paired bootstrap of `bella compare` separates a method from `map` in every seed. Needs Python's standard library only.

    python3 scripts/compare_methods.py --bella target/release/bella --out results --epsilons "0.002 0.005" map svgd …
"""

import argparse
import copy
import csv
import math
import re
import subprocess
from pathlib import Path

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
QUANTILES = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
COMPARED = {"accuracy": 1, "nll": -1, "ece": -1, "brier": -1}
NOTE = """\
Cells are means over the seeds ± the half width of the 95 % interval (Student's t); predictions are averaged probabilities. A
▲ (better) or ▼ (worse) says that the 95 % interval of the paired bootstrap of the difference from `map` excludes 0 in every
seed. AUROC of errors and of CIFAR-100 use the predictive entropy. Sets are those of `lac` at level 0.1, with thresholds from the
held-out images. Accuracies under FGSM are those of the first images alone that were attacked. Seconds are those of training,
relative to `map` of the same seed, without what `laplace` and `tfb` fit afterwards; peak memory is that of the process.
Two rows stand beside the methods: `map` after temperature scaling on the held-out images, and, for each method, the ensemble (or `map`) whose
training took as long, within 15 %.
"""
# The largest relative difference of two costs that count as equal.
EQUAL = 0.15
# What a temperature changes in other ways than its columns say.
UNSCALED = ["mi_correct", "mi_wrong", "auroc_error", "auroc_cifar100", "set_coverage", "mean_set_size"]


def rows_of(path):
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def trained(folder):
    """The run of each (method, seed) by the last line `run: FOLDER` of its log."""
    runs = {}
    for log in sorted(folder.glob("*-s*.log")):
        name = re.fullmatch(r"(.+)-s(\d+)", log.stem)
        if not name:
            continue
        method, seed = name.groups()
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = re.findall(r"^run: (.+)$", text, re.MULTILINE)
        if lines and Path(lines[-1].strip()).is_dir():
            runs[method, int(seed)] = Path(lines[-1].strip())
    return runs


def names_of(runs, results):
    """The row of the table for each (method, seed): runs are averaged only if they share `config`, the hash of their settings without
    the seed. The rows of a method that was trained with several settings are told apart by it."""
    configs = {key: (one(results, run, condition="clean") or {}).get("config") or run.name for key, run in runs.items()}
    of_method = {}
    for (method, _), config in configs.items():
        of_method.setdefault(method, set()).add(config)
    return {key: key[0] if len(of_method[key[0]]) == 1 else f"{key[0]}, config {config}" for key, config in configs.items()}


def number(row, column):
    text = row.get(column, "") if row else ""
    return float(text) if text else None


def one(rows, run, **wanted):
    """The first row of a run with these cells."""
    fitting = (row for row in rows if row["run"] == run.name and all(row.get(key) == value for key, value in wanted.items()))
    return next(fitting, None)


class Measured:
    """What was measured of one run."""

    def __init__(self, run, name, tables, epsilons, plain):
        results, ood, conformal = tables
        clean = one(results, run, condition="clean")
        wrong = one(ood, run, score="predictive_entropy")
        sets = one(conformal, run, condition="clean", score="lac", average="pm", part="all")
        seconds, reference = number(clean, "train_wall_seconds"), number(plain, "train_wall_seconds")
        self.cells = {
            "members": number(clean, "members"),
            "accuracy": number(clean, "accuracy_pm"),
            "nll": number(clean, "nll_pm"),
            "ece": number(clean, "ece_pm"),
            "brier": number(clean, "brier_pm"),
            "mi_correct": number(clean, "mi_correct_pm"),
            "mi_wrong": number(clean, "mi_wrong_pm"),
            "auroc_error": number(clean, "auroc_entropy_error_pm"),
            "auroc_cifar100": number(wrong, "auroc"),
        }
        for epsilon in epsilons:
            attacked = (row for row in results if row["run"] == run.name and row.get("attack") == "fgsm")
            found = next((row for row in attacked if number(row, "epsilon") == epsilon), None)
            self.cells[f"accuracy_fgsm_{epsilon:g}"] = number(found, "accuracy_pm")
        self.cells["set_coverage"] = number(sets, "set_coverage")
        self.cells["mean_set_size"] = number(sets, "mean_set_size")
        self.cells["train_seconds_over_map"] = seconds / reference if seconds and reference else None
        self.cells["peak_memory_mb"] = (number(clean, "train_peak_memory_bytes") or math.nan) / 1e6
        self.name, self.seconds, self.clean = name, seconds, clean

    def scaled(self):
        """What was measured after temperature scaling; None where that was not evaluated."""
        if number(self.clean, "nll_ts_pm") is None:
            return None
        other = copy.copy(self)
        by_scaling = {metric: number(self.clean, f"{metric}_ts_pm") for metric in ("nll", "ece", "brier")}
        other.cells = {**self.cells, **by_scaling, **dict.fromkeys(UNSCALED)}
        return other


def summary(values):
    """Mean and half width of the 95 % interval; None for what is not defined."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return None, None
    mean = sum(known) / len(known)
    if len(known) < 2:
        return mean, None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / (len(known) - 1))
    quantile = QUANTILES[min(len(known) - 2, len(QUANTILES) - 1)]
    return mean, quantile * deviation / math.sqrt(len(known))


def rivals(measured):
    """The rows that a method has to beat, by their names, and a note for each that is missing."""
    rows, missing = {}, []
    plain = next((seeds for name, seeds in measured.items() if name.split(",")[0] == "map"), {})
    scaled = {seed: one.scaled() for seed, one in plain.items()}
    if scaled and all(scaled.values()):
        rows["map, temperature-scaled"] = scaled
    else:
        missing.append("`map`, temperature-scaled: missing; `bella eval RUN --calibrate` for every seed of `map`")

    def cost(seeds):
        known = [one.seconds for one in seeds.values() if one.seconds]
        return sum(known) / len(known) if known else None

    networks = {name: cost(seeds) for name, seeds in measured.items() if name.split(",")[0] in ("map", "ensemble")}
    networks = {name: seconds for name, seconds in networks.items() if seconds}
    for name, seeds in measured.items():
        seconds = cost(seeds)
        if name.split(",")[0] in ("map", "ensemble") or not seconds:
            continue
        nearest = min(networks, key=lambda other: abs(math.log(networks[other] / seconds)), default=None)
        if nearest and abs(math.log(networks[nearest] / seconds)) <= math.log1p(EQUAL):
            rows[f"{nearest}, at the cost of {name}"] = measured[nearest]
        else:
            missing.append(f"ensemble at the cost of `{name}`: missing; its training takes {seconds:.0f} s")
    return rows, missing


def predictions(run):
    found = sorted((run / "predictions").glob("cifar10@clean*.safetensors"))
    return found[0] if found else None


def differences(bella, runs, names):
    """Rows of paired bootstraps against `map` of the same seed."""
    found = []
    for method, seed in sorted(names):
        a, b = (predictions(runs.get((name, seed), Path("."))) for name in ("map", method))
        if method == "map" or not a or not b:
            continue
        printed = subprocess.run([bella, "compare", a, b, "--average", "pm", "--csv"], check=True, capture_output=True, text=True)
        for row in csv.DictReader(printed.stdout.splitlines()):
            found.append({"method": names[method, seed], "seed": seed, **row})
    return found


def mark(paired, method, metric, seeds):
    """▲ or ▼ where the intervals of all seeds lie on one side of 0."""
    rows = [row for row in paired if row["method"] == method and row["metric"] == metric]
    sides = {1 if float(row["low"]) > 0 else -1 if float(row["high"]) < 0 else 0 for row in rows}
    if len(rows) < seeds or len(sides) != 1 or 0 in sides:
        return ""
    return " ▲" if sides.pop() == COMPARED[metric] else " ▼"


def text(column, mean, half):
    if mean is None:
        return "–"
    percent = column.startswith("accuracy") or column in ("ece", "set_coverage")
    scale, digits = (100, 2) if percent else (1, 0 if column in ("members", "peak_memory_mb") else 2 if "seconds" in column or "size" in column else 4)
    shown = f"{mean * scale:.{digits}f}"
    return shown if half is None or column == "members" else f"{shown} ± {half * scale:.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bella", default="bella")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--epsilons", default="0.002 0.005")
    parser.add_argument("methods", nargs="+")
    arguments = parser.parse_args()
    out = arguments.out
    epsilons = [float(word) for word in arguments.epsilons.split()]
    runs = trained(out / "sweeps" / "comparison")
    tables = [rows_of(out / f"comparison{suffix}.csv") for suffix in ("", "-ood", "-conformal")]
    names = {key: name for key, name in names_of(runs, tables[0]).items() if key[0] in arguments.methods}
    if not names:
        raise SystemExit(f"{out}: no finished run of a comparison here")
    measured = {}
    for method, seed in sorted(names, key=lambda key: (arguments.methods.index(key[0]), key[1])):
        plain = one(tables[0], runs.get(("map", seed), Path("-")), condition="clean")
        name = names[method, seed]
        measured.setdefault(name, {})[seed] = Measured(runs[method, seed], name, tables, epsilons, plain)
    methods = list(measured)
    paired = differences(arguments.bella, runs, names)
    columns = list(next(iter(measured[methods[0]].values())).cells)
    written = [["method", "seeds", *(name for column in columns for name in (column, f"{column}_half_width"))]]
    shown = [["method", "seeds", *columns]]
    beside, missing = rivals(measured)
    for method, of_seeds in {**measured, **beside}.items():
        seeds = of_seeds.values()
        cells = {column: summary([one.cells[column] for one in seeds]) for column in columns}
        written.append([method, len(seeds), *("" if value is None else value for column in columns for value in cells[column])])
        marks = {column: mark(paired, method, column, len(seeds)) if column in COMPARED else "" for column in columns}
        shown.append([method, str(len(seeds)), *(text(column, *cells[column]) + marks[column] for column in columns)])
    tables_folder = out / "comparison"
    tables_folder.mkdir(exist_ok=True)
    with open(tables_folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(written)
    if paired:
        with open(tables_folder / "paired.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(paired[0]))
            writer.writeheader()
            writer.writerows(paired)
    lines = ["| " + " | ".join(row) + " |" for row in shown]
    lines.insert(1, "|" + "---|" * len(shown[0]))
    page = "\n".join(lines) + "\n\n" + NOTE + "".join(f"\n- {note}" for note in missing) + ("\n" if missing else "")
    (out / "comparison.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
