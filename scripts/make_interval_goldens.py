#!/usr/bin/env python3
"""Writes tests/fixtures/intervals.json: split conformal intervals of predicted numbers by the packages that users know.

crepes 0.9.1 (`ConformalRegressor`: absolute and normalised residuals) and MAPIE 1.6.0 (`ConformalizedQuantileRegressor` with its symmetric
correction; `SplitConformalRegressor` with absolute residuals once more), with scikit-learn 1.9.1 and scipy 1.17.1:

    pip install crepes==0.9.1 MAPIE==1.6.0 scipy==1.17.1
    python scripts/make_interval_goldens.py tests/fixtures/intervals.json

Predictions are mixtures of two Gaussians with equal weights; mean, deviation and central interval of each are those of scipy and numpy.
"""

import json
import sys

import numpy as np
from crepes import ConformalRegressor
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from scipy import optimize, stats
from sklearn.base import BaseEstimator, RegressorMixin

MEMBERS, HELD_OUT, TESTS = 2, 40, 15
ALPHAS = [0.1, 0.2, 0.5]


class Known(RegressorMixin, BaseEstimator):
    """A model whose prediction for a sample, given by its number, is known."""

    def __init__(self, values=None):
        self.values = values

    def fit(self, x, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, x):
        return np.asarray(self.values)[np.asarray(x)[:, 0].astype(int)]


def central(means, deviations, share):
    """The ends between which a mixture of equal weights has a share in its middle."""
    ends = []
    for probability in (0.5 - share / 2, 0.5 + share / 2):
        under = lambda y: stats.norm.cdf(y, means, deviations).mean() - probability
        ends.append(optimize.brentq(under, -100, 100, xtol=1e-13))
    return ends


def main():
    draw = np.random.default_rng(5)
    count = HELD_OUT + TESTS
    means = draw.normal(0, 2, (MEMBERS, count))
    deviations = draw.uniform(0.3, 2, (MEMBERS, count))
    y = means.mean(0) + draw.normal(0, 1.5, count)
    mean = means.mean(0)
    deviation = np.sqrt((deviations**2).mean(0) + means.var(0))
    held, tests = slice(0, HELD_OUT), slice(HELD_OUT, count)
    x = np.arange(count)[:, None]
    expected = []
    for alpha in ALPHAS:
        ends = np.array([central(means[:, at], deviations[:, at], 1 - alpha) for at in range(count)])
        residuals = y[held] - mean[held]
        absolute = ConformalRegressor().fit(residuals).predict_int(mean[tests], confidence=1 - alpha)
        normalised = ConformalRegressor().fit(residuals, sigmas=deviation[held]).predict_int(mean[tests], sigmas=deviation[tests], confidence=1 - alpha)
        split = SplitConformalRegressor(Known(mean), confidence_level=1 - alpha, prefit=True).conformalize(x[held], y[held])
        assert np.allclose(split.predict_interval(x[tests])[1][:, :, 0], absolute, rtol=1e-9), "both packages give the same intervals"
        trio = [Known(ends[:, 0]), Known(ends[:, 1]), Known(mean)]
        quantiles = ConformalizedQuantileRegressor(trio, confidence_level=1 - alpha, prefit=True).conformalize(x[held], y[held])
        cqr = quantiles.predict_interval(x[tests], symmetric_correction=True)[1][:, :, 0]
        expected.append({"alpha": alpha, "absolute": absolute.tolist(), "normalised": normalised.tolist(), "cqr": cqr.tolist()})
    told = {"held_out": parts(means, deviations, y, held), "tests": parts(means, deviations, y, tests), "expected": expected}
    with open(sys.argv[1], "w") as file:
        json.dump(told, file)
        file.write("\n")


def parts(means, deviations, y, rows):
    return {"means": means[:, rows].tolist(), "variances": (deviations[:, rows] ** 2).tolist(), "numbers": y[rows].tolist()}


if __name__ == "__main__":
    main()
