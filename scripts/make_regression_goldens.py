#!/usr/bin/env python3
"""Writes tests/fixtures/regression.json: metrics of predicted numbers by the packages that users know.

torch-uncertainty 0.13.0 (NLL, QCE), torchmetrics 1.9.0 (RMSE, MAE), scoringrules 0.10.0 (CRPS), uncertainty-toolbox 0.1.1 (calibration of
quantiles), scipy 1.17.1 (correlations, quantiles), torch 2.11.0:

    pip install torch-uncertainty==0.13.0 torchmetrics==1.9.0 scoringrules==0.10.0 uncertainty-toolbox==0.1.1 scipy==1.17.1
    python scripts/make_regression_goldens.py tests/fixtures/regression.json

The modules of torch-uncertainty are loaded by themselves, since the package imports trainers that nothing here needs.
"""

import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import scoringrules
import torch
import torchmetrics
from scipy import optimize, stats
from torch.distributions import Categorical, MixtureSameFamily, Normal

MEMBERS, SAMPLES = 3, 12


def torch_uncertainty_metrics():
    """Returns DistributionNLL and QuantileCalibrationError, loaded without the package's trainers."""
    root = Path(importlib.util.find_spec("torch_uncertainty").submodule_search_locations[0])
    for name in ["torch_uncertainty", "torch_uncertainty.metrics", "torch_uncertainty.metrics.classification", "torch_uncertainty.metrics.regression"]:
        module = types.ModuleType(name)
        module.__path__ = [str(root / "/".join(name.split(".")[1:]))]
        sys.modules[name] = module
    # The figures, which are not drawn.
    for name in ["matplotlib", "matplotlib.pyplot"]:
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["matplotlib.pyplot"].Figure = sys.modules["matplotlib.pyplot"].Axes = None
    chart = types.ModuleType("torch_uncertainty.metrics.classification.calibration_error")
    chart.reliability_chart = None
    sys.modules[chart.__name__] = chart

    def load(name):
        spec = importlib.util.spec_from_file_location(name, root / ("/".join(name.split(".")[1:]) + ".py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    nll = load("torch_uncertainty.metrics.classification.categorical_nll")
    sys.modules["torch_uncertainty.metrics"].CategoricalNLL = nll.CategoricalNLL
    return (
        load("torch_uncertainty.metrics.regression.nll").DistributionNLL,
        load("torch_uncertainty.metrics.regression.quantile_calibration").QuantileCalibrationError,
    )


def measured(of, *values):
    of.update(*values)
    return float(of.compute())


def uncertainty_toolbox():
    """Returns the calibration error of the toolbox, loaded without its plots."""
    root = Path(importlib.util.find_spec("uncertainty_toolbox").submodule_search_locations[0])
    source = (root / "metrics_calibration.py").read_text()
    source = source.replace("from uncertainty_toolbox.utils import (", "from uct_utils import (")
    utils = types.ModuleType("uct_utils")
    exec((root / "utils.py").read_text(), utils.__dict__)
    sys.modules["uct_utils"] = utils
    sys.modules.setdefault("tqdm", types.ModuleType("tqdm")).tqdm = lambda values: values
    for name in ["shapely", "sklearn", "sklearn.isotonic"]:
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["sklearn.isotonic"].IsotonicRegression = None
    geometry, ops = types.ModuleType("shapely.geometry"), types.ModuleType("shapely.ops")
    geometry.Polygon = geometry.LineString = ops.polygonize = ops.unary_union = None
    sys.modules.setdefault("shapely.geometry", geometry)
    sys.modules.setdefault("shapely.ops", ops)
    module = types.ModuleType("uct_calibration")
    exec(source, module.__dict__)
    return module.mean_absolute_calibration_error


def quantile(share, weights, means, deviations):
    below = lambda y: float(np.sum(weights * stats.norm.cdf(y, means, deviations))) - share
    far = 12 * deviations.max()
    return optimize.brentq(below, means.min() - far, means.max() + far, xtol=1e-13, rtol=1e-14)


def case(means, variances, weights, y):
    """Returns predictions with their metrics. Everything is f64."""
    DistributionNLL, QuantileCalibrationError = CLASSES
    deviations, shares = np.sqrt(variances), weights / weights.sum()
    tensor = lambda values: torch.tensor(values, dtype=torch.float64)
    mixture = MixtureSameFamily(
        Categorical(probs=tensor(np.tile(shares, (SAMPLES, 1)))), Normal(tensor(means.T), tensor(deviations.T))
    )
    mean, variance = mixture.mean, mixture.variance
    matched = Normal(mean, variance.sqrt())
    target = tensor(y)
    widths = {
        level: float(np.mean([
            quantile(0.5 + level / 2, shares, means[:, i], deviations[:, i]) - quantile(0.5 - level / 2, shares, means[:, i], deviations[:, i])
            for i in range(SAMPLES)
        ]))
        for level in (0.9, 0.95)
    }
    place = np.array([np.sum(shares * stats.norm.cdf(y[i], means[:, i], deviations[:, i])) for i in range(SAMPLES)])
    found = {
        "rmse": measured(torchmetrics.MeanSquaredError(squared=False).set_dtype(torch.float64), mean, target),
        "mae": measured(torchmetrics.MeanAbsoluteError().set_dtype(torch.float64), mean, target),
        "nll": measured(DistributionNLL(reduction="mean").set_dtype(torch.float64), mixture, target),
        "nll_normal": measured(DistributionNLL(reduction="mean").set_dtype(torch.float64), matched, target),
        "crps": float(np.mean(scoringrules.crps_mixnorm(y, means.T, deviations.T, np.tile(shares, (SAMPLES, 1))))),
        "crps_normal": float(np.mean(scoringrules.crps_normal(y, mean.numpy(), variance.sqrt().numpy()))),
        "coverage_90": float(np.mean(np.abs(2 * place - 1) <= 0.9)),
        "coverage_95": float(np.mean(np.abs(2 * place - 1) <= 0.95)),
        "width_90": widths[0.9],
        "width_95": widths[0.95],
        "aleatoric": float(np.sqrt(np.mean(shares @ variances))),
        "pearson": float(stats.pearsonr(mean.numpy(), y)[0]),
        "spearman": float(stats.spearmanr(mean.numpy(), y)[0]),
    }
    if len(means) == 1:
        # Both are of one Gaussian: the package has no quantiles of a mixture.
        found["qce"] = measured(QuantileCalibrationError().set_dtype(torch.float64), matched, target)
        found["mace"] = float(CALIBRATION_ERROR(mean.numpy(), variance.sqrt().numpy(), y, prop_type="quantile"))
    else:
        found["epistemic"] = float(np.sqrt(np.mean(variance.numpy() - shares @ variances)))
    return {"means": means.tolist(), "variances": variances.tolist(), "weights": weights.tolist(), "numbers": y.tolist(), "metrics": found}


CLASSES = torch_uncertainty_metrics()
CALIBRATION_ERROR = uncertainty_toolbox()


def main():
    rng = np.random.default_rng(38)
    y = 20 + 5 * rng.standard_normal(SAMPLES)
    means = y + rng.standard_normal((MEMBERS, SAMPLES)) * 2
    variances = rng.uniform(0.3, 6, (MEMBERS, SAMPLES))
    cases = {
        "one": case(means[:1], variances[:1], np.ones(1), y),
        "three": case(means, variances, np.ones(MEMBERS), y),
        "weighted": case(means, variances, np.array([3.0, 1.0, 0.5]), y),
    }
    Path(sys.argv[1]).write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
