"""The tables of scripts/compare_methods.sh: one row a method, means over seeds with 95 % intervals (Student's t), and marks where
the paired bootstrap of `bella compare`, corrected for as many comparisons as a table has rows, separates a method from `map` in every
seed. The first table is of equal epochs; each further one is of equal processor time. Needs Python's standard library only.

Rows of other numbers of images, which an earlier comparison may have left, are not read.

    python3 scripts/compare_methods.py --bella target/release/bella --out results --epsilons "0.002 0.005" --shifts "contrast:3" map svgd …
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
SIGNIFICANT = 0.05
NOTE = """\
Cells are means over the seeds ± the half width of the 95 % interval (Student's t); predictions are averaged probabilities. A
▲ (better) or ▼ (worse) says that in every seed the paired bootstrap of the difference from `map` of the same table has p < 0.05 after Holm's
correction for the rows of the table. AUROC of errors and of CIFAR-100 use the predictive entropy. Sets are those of `lac` at level 0.1, with
thresholds from the held-out images. Accuracies under FGSM and numbers of shifted images (means over the corruptions) are those of the first
images alone. Seconds are those of the processor in training, with what is fitted after it and the held-out predictions after each epoch;
peak memory is that of the process.
`map` stands a second time after temperature scaling on the held-out images.
"""
# The largest relative difference of two costs that count as equal.
EQUAL = 0.15
# What a temperature changes in other ways than its columns say.
UNSCALED = ["mi_correct", "mi_wrong", "diversity_kl", "auroc_error", "auroc_cifar100", "set_coverage", "mean_set_size"]
SCALED = ("nll", "ece", "brier")


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
        # Evaluations print the id alone.
        folders = [Path(line.strip()) for line in re.findall(r"^run: (.+)$", text, re.MULTILINE)]
        folders = [folder for folder in folders if len(folder.parts) > 1 and folder.is_dir()]
        if folders:
            runs[method, int(seed)] = folders[-1]
    return runs


def processor_seconds(run):
    """What training took, by the file that the script keeps beside a run; None where there is none."""
    path = run / "processor-seconds.txt"
    return sum(map(float, path.read_text(encoding="utf-8").split())) if path.is_file() else None


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


def fitting(rows, run, **wanted):
    """The rows of a run with these cells."""
    return [row for row in rows if row["run"] == run.name and all(row.get(key) == value for key, value in wanted.items())]


def one(rows, run, **wanted):
    """The first row of a run with these cells."""
    return next(iter(fitting(rows, run, **wanted)), None)


class Measured:
    """What was measured of one run."""

    def __init__(self, run, tables, asked):
        results, ood, conformal = tables
        clean = one(results, run, condition="clean", samples=asked.tested)
        wrong = one(ood, run, score="predictive_entropy", samples=asked.tested, ood_samples=asked.foreign)
        sets = one(conformal, run, condition="clean", score="lac", average="pm", part="all", samples=asked.tested)
        self.clean = clean
        corruptions = [shift.partition(":")[::2] for shift in asked.shifts]
        self.shifted = [one(results, run, corruption=key, severity=severity, samples=asked.shifted) for key, severity in corruptions]
        self.seconds = processor_seconds(run)
        self.cells = {
            "members": number(clean, "members"),
            "accuracy": number(clean, "accuracy_pm"),
            "nll": number(clean, "nll_pm"),
            "ece": number(clean, "ece_pm"),
            "brier": number(clean, "brier_pm"),
            "mi_correct": number(clean, "mi_correct_pm"),
            "mi_wrong": number(clean, "mi_wrong_pm"),
            "diversity_kl": number(clean, "diversity_kl"),
            "auroc_error": number(clean, "auroc_entropy_error_pm"),
            "auroc_cifar100": number(wrong, "auroc"),
            "accuracy_shifted": self.mean_shifted("accuracy_pm"),
            "nll_shifted": self.mean_shifted("nll_pm"),
            "ece_shifted": self.mean_shifted("ece_pm"),
        }
        attacked = fitting(results, run, attack="fgsm", samples=asked.attacked)
        for epsilon in asked.epsilons:
            found = next((row for row in attacked if number(row, "epsilon") == epsilon), None)
            self.cells[f"accuracy_fgsm_{epsilon:g}"] = number(found, "accuracy_pm")
        self.cells["set_coverage"] = number(sets, "set_coverage")
        self.cells["mean_set_size"] = number(sets, "mean_set_size")
        self.cells["train_processor_seconds"] = self.seconds
        self.cells["peak_memory_mb"] = (number(clean, "train_peak_memory_bytes") or math.nan) / 1e6

    def mean_shifted(self, column):
        """The mean over the corruptions; None unless all of them have the column."""
        values = [number(row, column) for row in self.shifted]
        return sum(values) / len(values) if values and None not in values else None

    def scaled(self):
        """What was measured after temperature scaling; None where that was not evaluated."""
        if number(self.clean, "nll_ts_pm") is None:
            return None
        other = copy.copy(self)
        by_scaling = {metric: number(self.clean, f"{metric}_ts_pm") for metric in SCALED}
        by_scaling |= {f"{metric}_shifted": self.mean_shifted(f"{metric}_ts_pm") for metric in SCALED if f"{metric}_shifted" in self.cells}
        other.cells = {**self.cells, **by_scaling, **dict.fromkeys(UNSCALED)}
        return other


def t_quantile(degrees):
    """The quantile of Student's t; beyond the list by its expansion around the normal one (Abramowitz and Stegun, 26.7.5)."""
    if degrees <= len(QUANTILES):
        return QUANTILES[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def summary(values):
    """Mean and half width of the 95 % interval; None for what is not defined."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return None, None
    mean = sum(known) / len(known)
    if len(known) < 2:
        return mean, None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / (len(known) - 1))
    quantile = t_quantile(len(known) - 1)
    return mean, quantile * deviation / math.sqrt(len(known))


def cost(seeds):
    """The mean processor seconds of the runs of a row; None where they are not known."""
    known = [one.seconds for one in seeds.values() if one.seconds]
    return sum(known) / len(known) if known else None


def groups(measured):
    """The rows of each table by their titles: equal epochs, then each number of times the processor time of `map`."""
    plain = {name: seeds for name, seeds in measured.items() if "@" not in name}
    tables = {"Equal epochs": plain}
    single = next((cost(seeds) for name, seeds in plain.items() if name.split(",")[0] == "map"), None)
    for factor in sorted({name.split(",")[0].split("@")[1] for name in measured if "@" in name}, key=float):
        rows = {}
        for name, seeds in measured.items():
            of_factor = name.split(",")[0].endswith(f"@{factor}")
            # What took as long with the epochs of all stands here, too.
            took = cost(seeds) if "@" not in name and single else None
            if of_factor or (took and abs(math.log(took / (single * float(factor)))) <= math.log1p(EQUAL)):
                rows[name] = seeds
        tables[f"Equal processor time, {factor} times that of `map`"] = rows
    return tables


def base(names):
    """The row that the others of a table are compared with: `map`."""
    return next((name for name in names if name.split(",")[0].split("@")[0] == "map"), None)


def predictions(run, clean):
    """The file of the row of clean images; those of other images than the first evaluated ones have their fingerprint in the name."""
    names = [f"cifar10@clean@images-{clean.get('images')}", "cifar10@clean"]
    files = (run / "predictions" / f"{name}.safetensors" for name in names)
    return next((file for file in files if file.is_file()), None)


def differences(bella, title, rows, files):
    """Rows of paired bootstraps against `map` of the same seed, corrected for the rows of a table."""
    found, single = [], base(rows)
    for seed in sorted(rows.get(single, {})):
        others = [name for name in rows if name != single and files.get((name, seed))]
        if not others or not files.get((single, seed)):
            continue
        command = [bella, "compare", files[single, seed], *(files[name, seed] for name in others), "--average", "pm", "--csv"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        names = {str(files[name, seed]): name for name in others}
        for row in csv.DictReader(printed.splitlines()):
            found.append({"table": title, "method": names[row.pop("predictor")], "training_seed": seed, **row})
    return found


def mark(paired, method, metric, seeds):
    """▲ or ▼ where every seed has a significant difference, to the same side."""
    rows = [row for row in paired if row["method"] == method and row["metric"] == metric]
    sides = {math.copysign(1, float(row["difference"])) if float(row["p_adjusted"]) < SIGNIFICANT else 0 for row in rows}
    if len(rows) < seeds or len(sides) != 1 or 0 in sides:
        return ""
    return " ▲" if sides.pop() == COMPARED[metric] else " ▼"


def text(column, mean, half):
    if mean is None:
        return "–"
    percent = column.startswith("accuracy") or column in ("ece", "ece_shifted", "set_coverage")
    scale, digits = (100, 2) if percent else (1, 0 if column in ("members", "peak_memory_mb") else 2 if "seconds" in column or "size" in column else 4)
    shown = f"{mean * scale:.{digits}f}"
    return shown if half is None or column == "members" else f"{shown} ± {half * scale:.{digits}f}"


def table(title, rows, paired):
    """The page's lines of a table, and the rows of its CSV."""
    columns = list(next(iter(next(iter(rows.values())).values())).cells)
    shown, written = [["method", "seeds", *columns]], []
    single = base(rows)
    scaled = {seed: one.scaled() for seed, one in rows.get(single, {}).items()}
    beside = {f"{single}, temperature-scaled": scaled} if scaled and all(scaled.values()) else {}
    for method, of_seeds in {**rows, **beside}.items():
        cells = {column: summary([one.cells[column] for one in of_seeds.values()]) for column in columns}
        marks = {column: mark(paired, method, column, len(of_seeds)) if column in COMPARED else "" for column in columns}
        shown.append([method, str(len(of_seeds)), *(text(column, *cells[column]) + marks[column] for column in columns)])
        numbers = ["" if value is None else value for column in columns for value in cells[column]]
        written.append([title, method, len(of_seeds), *numbers])
    lines = ["| " + " | ".join(row) + " |" for row in shown]
    lines.insert(1, "|" + "---|" * len(shown[0]))
    return [f"## {title}", "", *lines, ""], written, columns


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def runs_with_cost(results, runs):
    """The rows of these runs, with the processor seconds of their training: what `bella report` draws from."""
    seconds = {run.name: processor_seconds(run) for run in runs.values()}
    rows = [row for row in results if row["run"] in seconds]
    # A hash of the row as bella wrote it does not fit one with another cell.
    columns = [column for column in dict.fromkeys([*(rows[0] if rows else []), "train_processor_seconds"]) if column != "row_hash"]
    return [columns] + [
        [row.get(column) or seconds[row["run"]] or "" if column == "train_processor_seconds" else row.get(column, "") for column in columns]
        for row in rows
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bella", default="bella")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--epsilons", default="0.002 0.005", type=lambda text: [float(word) for word in text.split()])
    parser.add_argument("--shifts", default="gaussian-noise:3 gaussian-blur:3 contrast:3", type=str.split)
    # Numbers of images as the cells of `samples` have them.
    for name, images in {"tested": "10000", "attacked": "1000", "shifted": "2000", "foreign": "10000"}.items():
        parser.add_argument(f"--{name}", default=images)
    parser.add_argument("methods", nargs="+")
    arguments = parser.parse_args()
    out = arguments.out
    runs = trained(out / "sweeps" / "comparison")
    tables = [rows_of(out / f"comparison{suffix}.csv") for suffix in ("", "-ood", "-conformal")]
    # What is not evaluated yet has no row.
    runs = {key: run for key, run in runs.items() if one(tables[0], run, condition="clean", samples=arguments.tested)}
    names = {key: name for key, name in names_of(runs, tables[0]).items() if key[0].split("@")[0] in arguments.methods}
    if not names:
        raise SystemExit(f"{out}: no finished run of a comparison on {arguments.tested} test images here")
    measured, files = {}, {}
    for method, seed in sorted(names, key=lambda key: (arguments.methods.index(key[0].split("@")[0]), key)):
        run, name = runs[method, seed], names[method, seed]
        measured.setdefault(name, {})[seed] = Measured(run, tables, arguments)
        files[name, seed] = predictions(run, measured[name][seed].clean)
    page, written, all_paired = [], [], []
    for title, rows in groups(measured).items():
        if rows:
            paired = differences(arguments.bella, title, rows, files)
            lines, numbers, columns = table(title, rows, paired)
            page += lines
            written += numbers
            all_paired += paired
    folder = out / "comparison"
    folder.mkdir(exist_ok=True)
    head = ["table", "method", "seeds", *(name for column in columns for name in (column, f"{column}_half_width"))]
    write_csv(folder / "table.csv", [head, *written])
    write_csv(folder / "runs.csv", runs_with_cost(tables[0], {key: runs[key] for key in names}))
    if all_paired:
        write_csv(folder / "paired.csv", [list(all_paired[0]), *(row.values() for row in all_paired)])
    text_of_page = "\n".join(page) + "\n" + NOTE
    (out / "comparison.md").write_text(text_of_page, encoding="utf-8")
    print(text_of_page)


if __name__ == "__main__":
    main()
