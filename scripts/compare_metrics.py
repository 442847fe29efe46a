"""Compares `bella score` with torchmetrics, scikit-learn and numpy on random predictions.

    python scripts/compare_metrics.py target/release/bella

Needs torch, torchmetrics, scikit-learn (with scipy), numpy and safetensors. Prints the largest difference of each column over all
predictions and ends with exit code 1 if one is over 1e-6. Everything here is computed in f64 from the same f32 logits;
torchmetrics keeps its bin edges in f32, so samples whose confidence is that close to one are drawn again. Rankings by MI
are compared where every MI is above 1e-12: below, MI is the rounding of a difference of entropies, and so is its order.
"""

import csv
import io
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from scipy.optimize import minimize_scalar
from sklearn.metrics import average_precision_score, f1_score, log_loss, matthews_corrcoef, roc_auc_score, roc_curve
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

TOLERANCE = 1e-6
BINS = 15
# members, samples, classes, scale of the logits; a scale of 200 makes most confidences exactly 1
CASES = [
    (1, 200, 2, 2.0),
    (3, 1000, 3, 1.5),
    (5, 2000, 10, 2.0),
    (5, 500, 100, 4.0),
    (4, 300, 7, 0.05),
    (5, 400, 10, 200.0),
]
# samples outside the training distribution have smaller logits by this factor
OUTSIDE = 0.6


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def averages(logits):
    """Log-probabilities [N, C] of the logit mean and of the probability mean."""
    members = log_softmax(logits)
    largest = members.max(0)
    return {"lm": log_softmax(logits.mean(0)), "pm": largest + np.log(np.exp(members - largest).mean(0))}


def entropy(probabilities):
    return -np.where(probabilities > 0, probabilities * np.log(np.maximum(probabilities, 1e-300)), 0).sum(-1)


def uncertainty(logits):
    mean = averages(logits)
    members = np.exp(log_softmax(logits))
    total, expected = entropy(members.mean(0)), entropy(members).mean(0)
    return {
        ("max_probability", "lm"): -np.exp(mean["lm"]).max(1),
        ("max_probability", "pm"): -np.exp(mean["pm"]).max(1),
        ("predictive_entropy", ""): total,
        ("expected_entropy", ""): expected,
        ("mi", ""): np.maximum(total - expected, 0) if len(logits) > 1 else None,
        ("energy", ""): -torch.logsumexp(torch.from_numpy(logits.mean(0)), -1).numpy(),
        ("expected_energy", ""): -torch.logsumexp(torch.from_numpy(logits), -1).mean(0).numpy(),
    }


def resolved(mutual_information):
    """Whether there is an MI, and its order is not one of rounding."""
    return mutual_information is not None and (mutual_information > 1e-12).all()


def calibration(probabilities, labels):
    """ECE and MCE of torchmetrics. It puts confidences of exactly 1 into a 16th bin of their own; the last bin is meant."""
    probabilities = torch.from_numpy(probabilities).clamp(max=1 - 2e-16)
    classes = probabilities.shape[1]
    norm = lambda norm: multiclass_calibration_error(probabilities, labels, classes, BINS, norm).item()
    return norm("l1"), norm("max")


def other_calibration(confidence, correct):
    """ACE over equal-count bins by falling confidence, and RMSCE over equal bins."""
    samples = len(confidence)
    order = np.argsort(-confidence, kind="stable")
    ace = sum(abs((correct[bin] - confidence[bin]).sum()) for bin in np.array_split(order, BINS)) / samples
    of = np.clip(np.ceil(confidence * BINS) - 1, 0, BINS - 1)
    gaps = [(of == b).mean() * (correct[of == b].mean() - confidence[of == b].mean()) ** 2 for b in np.unique(of)]
    return ace, np.sqrt(sum(gaps))


def selective(confidence, correct):
    samples = len(confidence)
    answered = np.arange(1, samples + 1)
    errors = np.cumsum(~correct[np.argsort(-confidence, kind="stable")])
    within = answered[100 * errors <= 5 * answered]
    at = lambda percent: 1 - errors[-(-percent * samples // 100) - 1] / -(-percent * samples // 100)
    return {
        "aurc": (errors / answered).mean(),
        "augrc": np.trapezoid(errors / samples) / (samples - 1),
        "accuracy_at_80_coverage": at(80),
        "accuracy_at_90_coverage": at(90),
        "coverage_at_5_risk": max([0, *within]) / samples,
    }


def expected_metrics(logits, labels):
    scores = uncertainty(logits)
    entropies = {key: scores[key, ""] for key in ("predictive_entropy", "expected_entropy", "mi")}
    found = {key: values.mean() for key, values in entropies.items() if values is not None}
    one_hot = np.eye(logits.shape[2])[labels]
    target = torch.from_numpy(labels)
    classes = logits.shape[2]
    for suffix, log_probabilities in averages(logits).items():
        probabilities = np.exp(log_probabilities)
        confidence, correct = probabilities.max(1), log_probabilities.argmax(1) == labels
        ece, mce = calibration(probabilities, target)
        ace, rmsce = other_calibration(confidence, correct)
        values = {
            "accuracy": multiclass_accuracy(torch.from_numpy(log_probabilities), target, classes, "micro").item(),
            "nll": -log_probabilities[np.arange(len(labels)), labels].mean(),
            "brier": ((probabilities - one_hot) ** 2).sum(1).mean(),
            "ece": ece,
            "mce": mce,
            "ace": ace,
            "rmsce": rmsce,
            **selective(confidence, correct),
            "matthews": matthews_corrcoef(labels, log_probabilities.argmax(1)),
            "f1_macro": f1_score(labels, log_probabilities.argmax(1), average="macro", zero_division=0),
            "f1_macro_shown": f1_score(
                labels, log_probabilities.argmax(1), average="macro", labels=np.unique(labels), zero_division=0
            ),
        }
        if classes == 2:
            values["f1"] = f1_score(labels, log_probabilities.argmax(1))
        if log_probabilities.min() > np.log(np.finfo(float).eps):  # scikit-learn clips at eps
            values["nll"] = log_loss(labels, probabilities, labels=range(classes))
        if classes > 5:
            ranked = torch.from_numpy(log_probabilities)
            values["top5"] = multiclass_accuracy(ranked, target, classes, "micro", top_k=5).item()
        if 0 < correct.sum() < len(correct):
            values["auroc_entropy_error"] = roc_auc_score(~correct, scores["predictive_entropy", ""])
            if resolved(scores["mi", ""]):
                values["auroc_mi_error"] = roc_auc_score(~correct, scores["mi", ""])
        found.update({f"{key}_{suffix}": value for key, value in values.items()})
    return found


def expected_ood(inside, outside):
    """(score, average) -> measures, outside positive."""
    inside, outside = uncertainty(inside), uncertainty(outside)
    found = {}
    for key in inside:
        if inside[key] is None:
            found[key] = {}
            continue
        if key[0] == "mi" and not (resolved(inside[key]) and resolved(outside[key])):
            continue
        positive = np.r_[np.zeros(len(inside[key])), np.ones(len(outside[key]))]
        score = np.r_[inside[key], outside[key]]
        fpr, tpr, _ = roc_curve(positive, score, drop_intermediate=False)
        found[key] = {
            "auroc": roc_auc_score(positive, score),
            "aupr_in": average_precision_score(1 - positive, -score),
            "aupr_out": average_precision_score(positive, score),
            "fpr95": fpr[np.argmax(tpr >= 0.95)],
            "detection_error": (0.5 * (1 - tpr) + 0.5 * fpr).min(),
        }
    return found


def near_edge(logits):
    """Samples whose confidence an f32 bin edge could put into the neighbouring bin."""
    confidences = np.stack([np.exp(p).max(1) for p in averages(logits).values()])
    place = confidences * BINS
    return ((np.abs(place - np.round(place)) < 1e-5) & (np.round(place) < BINS)).any(0)


def draw(rng, members, samples, classes, scale):
    """Members share a signal, as members of an ensemble do; f32 values in f64. Labels lean to the signal."""
    logits = np.empty((members, samples, classes))
    labels = np.empty(samples, np.int64)
    missing = np.ones(samples, bool)
    while missing.any():
        count = missing.sum()
        signal = rng.normal(size=(1, count, classes))
        noise = rng.normal(size=(members, count, classes))
        logits[:, missing] = (scale * (signal + 0.7 * noise)).astype(np.float32)
        labels[missing] = (signal[0] + rng.normal(size=(count, classes))).argmax(-1)
        missing = near_edge(logits)
    return logits, labels


def save(path, logits, labels=None):
    tensors = {"logits": logits.astype(np.float32)}
    if labels is not None:
        tensors["labels"] = labels.astype(np.uint32)
    save_file(tensors, path)


def score(bella, *arguments):
    output = subprocess.run([bella, "score", *map(str, arguments), "--csv"], check=True, capture_output=True, text=True)
    return list(csv.DictReader(io.StringIO(output.stdout)))


class Differences:
    """Largest |bella - reference| a column, and how many numbers were compared."""

    def __init__(self):
        self.largest, self.count = {}, {}

    def add(self, column, cell, want):
        difference = abs(float(cell) - want) if cell else np.inf
        if not np.isfinite(difference):
            difference = np.inf
        self.largest[column] = max(self.largest.get(column, 0.0), difference)
        self.count[column] = self.count.get(column, 0) + 1

    def empty(self, column, cell):
        if cell:
            self.largest[column] = np.inf

    def report(self):
        width = max(map(len, self.largest))
        print(f"{'column':{width}}  compared  largest difference")
        for column, difference in self.largest.items():
            mark = "" if difference <= TOLERANCE else "  OVER"
            print(f"{column:{width}}  {self.count.get(column, 0):8}  {difference:.1e}{mark}")
        return all(difference <= TOLERANCE for difference in self.largest.values())


def minimum_nll(logits, labels, average):
    nll = lambda x: -averages(logits * np.exp(-x))[average][np.arange(len(labels)), labels].mean()
    grid = np.linspace(np.log(0.01), np.log(100), 101)
    best = int(np.argmin([nll(x) for x in grid]))
    if best in (0, 100):
        return None
    return minimize_scalar(nll, bounds=grid[[best - 1, best + 1]], method="bounded", options={"xatol": 1e-12})


def compare_scaling(differences, row, validation, test):
    (logits, labels), (test_logits, test_labels) = validation, test
    for average in ("lm", "pm"):
        fit = minimum_nll(logits, labels, average)
        if fit is None:
            differences.empty(f"temperature_{average}", row[f"temperature_{average}"])
            continue
        # The minimum is flat: scipy finds log T to about 1e-8, and NLL itself far better.
        temperature = float(row[f"temperature_{average}"])
        differences.add(f"temperature_{average} (log)", str(np.log(temperature)), fit.x)
        scaled = averages(test_logits / temperature)[average]
        wanted = -scaled[np.arange(len(test_labels)), test_labels].mean()
        differences.add(f"nll_ts_{average}", row[f"nll_ts_{average}"], wanted)
        brier = ((np.exp(scaled) - np.eye(scaled.shape[1])[test_labels]) ** 2).sum(1).mean()
        differences.add(f"brier_ts_{average}", row[f"brier_ts_{average}"], brier)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    bella, rng, differences = sys.argv[1], np.random.default_rng(0), Differences()
    with tempfile.TemporaryDirectory() as folder:
        test, validation, outside = (Path(folder) / f"{name}.safetensors" for name in ("test", "validation", "outside"))
        for members, samples, classes, scale in CASES:
            logits, labels = draw(rng, members, samples, classes, scale)
            held_out = draw(rng, members, samples // 2, classes, scale)
            foreign, _ = draw(rng, members, samples // 3, classes, OUTSIDE * scale)
            save(test, logits, labels)
            save(validation, *held_out)
            save(outside, foreign)
            [row] = score(bella, test, "--validation", validation)
            for column, want in expected_metrics(logits, labels).items():
                differences.add(column, row[column], want)
            compare_scaling(differences, row, held_out, (logits, labels))
            wanted = expected_ood(logits, foreign)
            rows = {(row["score"], row["average"]): row for row in score(bella, test, "--ood", outside)}
            assert rows.keys() == uncertainty(logits).keys(), rows.keys()
            for key, measures in wanted.items():
                for measure in ("auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"):
                    name = f"ood {measure} of {key[0]}" + (f"_{key[1]}" if key[1] else "")
                    if measure in measures:
                        differences.add(name, rows[key][measure], measures[measure])
                    else:
                        differences.empty(name, rows[key][measure])
    sys.exit(0 if differences.report() else 1)


if __name__ == "__main__":
    main()
