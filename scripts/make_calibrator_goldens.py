"""Writes tests/fixtures/calibrators.json: calibrated probabilities and calibration errors by other packages, for src/metrics.

    python scripts/make_calibrator_goldens.py DIRICHLET > tests/fixtures/calibrators.json

DIRICHLET is a copy of github.com/dirichletcal/dirichlet_python at b03f65f (it needs jax), of which vector scaling is the multinomial regression with a diagonal. The others are scikit-learn 1.9.1 (matrix
scaling is an unpenalised LogisticRegression on logits; isotonic is CalibratedClassifierCV), netcal 1.4.0, pycalib 0.1.0.dev6, relplot 1.0.3 and uncertainty-calibration 0.1.4.
"""

import json
import sys

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, sys.argv[1])
CLASSES = 4
# The factor of the logits that makes most probabilities 0 or 1 up to rounding.
SATURATED = 15


def draw(count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    logits = rng.normal(size=(count, CLASSES)) * 1.5 + 1.8 * np.eye(CLASSES)[labels] + np.array([0.5, 0, -0.5, 0.2])
    return (2 * logits).round(3).astype(np.float32).astype(float), labels


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose inputs are its probabilities."""

    def fit(self, x, y):
        self.classes_ = np.arange(CLASSES)
        return self

    def predict_proba(self, x):
        return x

    def predict(self, x):
        return x.argmax(1)


def main():
    import calibration
    from dirichletcal.calib.fulldirichlet import FullDirichletCalibrator
    from dirichletcal.calib.multinomial import MultinomialRegression
    from netcal.binning import HistogramBinning
    from pycalib.metrics import classwise_ECE
    import relplot.config
    from relplot.metrics import smECE

    # The mesh on which relplot integrates is so coarse by default that it is off by 0.001 here.
    relplot.config.smECE_mesh_pts = 20000
    (logits, labels), (test, test_labels) = draw(300, 0), draw(200, 1)
    p, q = softmax(logits, 1), softmax(test, 1)
    matrix = LogisticRegression(C=np.inf, tol=1e-12, max_iter=100000).fit(logits, labels)
    vector = MultinomialRegression(method="Diag", optimizer="newton").fit(logits, labels)
    isotonic = CalibratedClassifierCV(FrozenEstimator(Given().fit(p, labels)), method="isotonic").fit(p, labels)
    # Logits are in f32, as predictions are.
    sure, sure_test = (softmax((np.float32(SATURATED) * part.astype(np.float32)).astype(float), 1) for part in (logits, test))
    saturated = CalibratedClassifierCV(FrozenEstimator(Given().fit(sure, labels)), method="isotonic").fit(sure, labels)
    histogram = HistogramBinning(bins=15).fit(p, labels)
    dirichlet = FullDirichletCalibrator(reg_lambda=0.1, reg_mu=0.1, reg_norm=True, ref_row=False).fit(p, labels)
    correct = (q.argmax(1) == test_labels).astype(float)
    golden = {
        "held_out": {"logits": logits.tolist(), "labels": labels.tolist()},
        "test": {"logits": test.tolist(), "labels": test_labels.tolist()},
        "vector": np.asarray(vector.predict_proba(test)).tolist(),
        "matrix": matrix.predict_proba(test).tolist(),
        "isotonic": isotonic.predict_proba(q).tolist(),
        "saturated": {"factor": SATURATED, "isotonic": saturated.predict_proba(sure_test).tolist()},
        "histogram": histogram.transform(q).tolist(),
        "dirichlet": np.asarray(dirichlet.predict_proba(q)).tolist(),
        "metrics": {
            "classwise_ece": float(classwise_ECE(np.eye(CLASSES)[test_labels], q)),
            "rmsce_debiased": float(calibration.lower_bound_scaling_ce(q, test_labels, p=2, debias=True, mode="top-label")),
        },
        "smooth": {"temperature": 4.0, "smooth_ece": float(smECE(softmax(test / 4, 1).max(1), correct))},
    }
    print(json.dumps(golden))


main()
