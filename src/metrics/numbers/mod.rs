//! Metrics of predicted numbers. The members are a mixture of Gaussians; a metric is a pure function of the samples and one line in
//! [`NUMBER_METRICS`].

pub mod conformal;
mod scored;

use super::{Better, Column, Unit};

pub use scored::{LEVELS, Mixture, Sample, of_all};

/// A metric of predicted numbers.
pub struct NumberMetric {
    /// The name of the column.
    pub key: &'static str,
    /// The name in figures.
    pub short: &'static str,
    /// The formula and its conventions.
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
    /// Whether printed tables have it; files have all.
    pub is_shown: bool,
    /// The value; `None` if it is not defined.
    pub eval: fn(&[Sample]) -> Option<f64>,
}

/// The fields that most metrics share: they are better when they are lower, and files alone have them.
const LOWER: NumberMetric = NumberMetric {
    key: "",
    short: "",
    definition: "",
    unit: Unit::One,
    better: Better::Lower,
    is_shown: false,
    eval: |_| None,
};

/// Every metric of predicted numbers, in the order of the columns.
pub static NUMBER_METRICS: &[NumberMetric] = &[
    NumberMetric {
        key: "rmse",
        short: "RMSE",
        definition: "root of the mean squared difference of the mixture's mean from the number",
        is_shown: true,
        eval: |all| Some(mean(all, |one| (one.mean - one.number).powi(2)).sqrt()),
        ..LOWER
    },
    NumberMetric {
        key: "mae",
        short: "MAE",
        definition: "mean absolute difference of the mixture's mean from the number",
        eval: |all| Some(mean(all, |one| (one.mean - one.number).abs())),
        ..LOWER
    },
    NumberMetric {
        key: "nll",
        short: "NLL",
        definition: "mean of -log sum_i w_i N(y; mean_i, variance_i), the density of the members' mixture",
        unit: Unit::Nats,
        is_shown: true,
        eval: |all| Some(mean(all, |one| one.nll)),
        ..LOWER
    },
    NumberMetric {
        key: "nll_normal",
        short: "NLL of one Gaussian",
        definition: "the same under the Gaussian with the mixture's mean and variance",
        unit: Unit::Nats,
        eval: |all| Some(mean(all, |one| one.nll_normal)),
        ..LOWER
    },
    NumberMetric {
        key: "crps",
        short: "CRPS",
        definition: "mean of E|X - y| - E|X - X'| / 2 for X, X' of the mixture: the continuous ranked probability score",
        is_shown: true,
        eval: |all| Some(mean(all, |one| one.crps)),
        ..LOWER
    },
    NumberMetric {
        key: "crps_normal",
        short: "CRPS of one Gaussian",
        definition: "the same for the Gaussian with the mixture's mean and variance",
        eval: |all| Some(mean(all, |one| one.crps_normal)),
        ..LOWER
    },
    NumberMetric {
        key: "coverage_90",
        short: "Coverage of 90 %",
        definition: "share of numbers in the central 90 % interval of the mixture",
        unit: Unit::Fraction,
        better: Better::Neither,
        is_shown: true,
        eval: |all| Some(covered(all, LEVELS[0])),
    },
    NumberMetric {
        key: "width_90",
        short: "Width of 90 %",
        definition: "mean width of the central 90 % interval of the mixture",
        is_shown: true,
        eval: |all| Some(mean(all, |one| one.widths[0])),
        ..LOWER
    },
    NumberMetric {
        key: "coverage_95",
        short: "Coverage of 95 %",
        definition: "share of numbers in the central 95 % interval of the mixture",
        unit: Unit::Fraction,
        better: Better::Neither,
        eval: |all| Some(covered(all, LEVELS[1])),
        ..LOWER
    },
    NumberMetric {
        key: "width_95",
        short: "Width of 95 %",
        definition: "mean width of the central 95 % interval of the mixture",
        eval: |all| Some(mean(all, |one| one.widths[1])),
        ..LOWER
    },
    NumberMetric {
        key: "qce",
        short: "QCE",
        definition: "quantile calibration error: mean over 15 central intervals from 5 % to 95 % of |share covered - level| \
                     (torch-uncertainty)",
        unit: Unit::Fraction,
        is_shown: true,
        eval: |all| Some(quantile_calibration_error(all)),
        ..LOWER
    },
    NumberMetric {
        key: "mace",
        short: "MACE",
        definition: "mean over 100 levels p from 0 to 1 of |share of F(y) <= p - p| (Kuleshov et al. 2018)",
        unit: Unit::Fraction,
        eval: |all| Some(mean_absolute_calibration_error(all)),
        ..LOWER
    },
    NumberMetric {
        key: "aleatoric",
        short: "Noise",
        definition: "root of the mean of the members' noise",
        better: Better::Neither,
        eval: |all| Some(mean(all, |one| one.aleatoric).sqrt()),
        ..LOWER
    },
    NumberMetric {
        key: "epistemic",
        short: "Disagreement",
        definition: "root of the mean variance of the mean, between members and within those of Laplace in closed form; empty if it is 0, as for one point",
        better: Better::Neither,
        eval: |all| Some(mean(all, |one| one.epistemic).sqrt()).filter(|spread| *spread > 0.0),
        ..LOWER
    },
    NumberMetric {
        key: "pearson",
        short: "Pearson",
        definition: "correlation of the mixture's mean with the number; empty if one of them is constant",
        better: Better::Higher,
        eval: |all| pearson(&of(all, |one| one.mean), &of(all, |one| one.number)),
        ..LOWER
    },
    NumberMetric {
        key: "spearman",
        short: "Spearman",
        definition: "correlation of their ranks, where equal numbers share the mean rank",
        better: Better::Higher,
        eval: |all| spearman(&of(all, |one| one.mean), &of(all, |one| one.number)),
        ..LOWER
    },
];

fn of(all: &[Sample], value: impl Fn(&Sample) -> f64) -> Vec<f64> {
    all.iter().map(value).collect()
}

/// Returns the mean over samples, of which there is at least one.
fn mean(all: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    all.iter().map(value).sum::<f64>() / all.len() as f64
}

/// Returns the share of numbers in the central intervals with a share.
fn covered(all: &[Sample], share: f64) -> f64 {
    mean(all, |one| f64::from(u8::from(one.share() <= share)))
}

fn quantile_calibration_error(all: &[Sample]) -> f64 {
    const LEVELS: usize = 15;
    let gap = |at: usize| {
        let level = 0.05 + 0.9 * at as f64 / (LEVELS - 1) as f64;
        (covered(all, level) - level).abs()
    };
    (0..LEVELS).map(gap).sum::<f64>() / LEVELS as f64
}

fn mean_absolute_calibration_error(all: &[Sample]) -> f64 {
    const LEVELS: usize = 100;
    let gap = |at: usize| {
        let level = at as f64 / (LEVELS - 1) as f64;
        (mean(all, |one| f64::from(u8::from(one.place <= level))) - level).abs()
    };
    (0..LEVELS).map(gap).sum::<f64>() / LEVELS as f64
}

/// Returns the columns of all metrics with their values.
pub fn evaluate(all: &[Sample]) -> Vec<(String, Option<f64>)> {
    NUMBER_METRICS.iter().map(|metric| (metric.key.to_string(), (metric.eval)(all))).collect()
}

/// Returns the value of the metric with this key.
pub fn value(all: &[Sample], key: &str) -> Option<f64> {
    NUMBER_METRICS.iter().find(|metric| metric.key == key).and_then(|metric| (metric.eval)(all))
}

/// Returns the columns that printed tables have.
pub fn shown_columns() -> impl Iterator<Item = &'static str> {
    NUMBER_METRICS.iter().filter(|metric| metric.is_shown).map(|metric| metric.key)
}

/// Returns the meaning of a column.
pub fn of_column(name: &str) -> Option<Column> {
    let metric = NUMBER_METRICS.iter().find(|metric| metric.key == name)?;
    let NumberMetric { short, definition, unit, better, .. } = *metric;
    Some(Column { short, definition, unit, better })
}

/// Returns the correlation of Pearson; `None` if one of the lists is constant or has fewer than two numbers.
pub fn pearson(one: &[f64], other: &[f64]) -> Option<f64> {
    let count = one.len() as f64;
    let centred = |of: &[f64]| {
        let mean = of.iter().sum::<f64>() / count;
        of.iter().map(|value| value - mean).collect::<Vec<f64>>()
    };
    let (one, other) = (centred(one), centred(other));
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let scale = (product(&one, &one) * product(&other, &other)).sqrt();
    (scale > 0.0).then(|| product(&one, &other) / scale)
}

/// Returns the correlation of Spearman: that of the ranks.
pub fn spearman(one: &[f64], other: &[f64]) -> Option<f64> {
    pearson(&ranks(one), &ranks(other))
}

/// Returns the ranks from 1 on; equal numbers share the mean of theirs.
fn ranks(of: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..of.len()).collect();
    order.sort_by(|a, b| of[*a].total_cmp(&of[*b]));
    let mut ranks = vec![0.0; of.len()];
    let mut start = 0;
    for equal in order.chunk_by(|a, b| of[*a] == of[*b]) {
        let rank = start as f64 + 0.5 * (equal.len() + 1) as f64;
        equal.iter().for_each(|at| ranks[*at] = rank);
        start += equal.len();
    }
    ranks
}

/// Every metric is compared with the packages that users know.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::Numbers;

    /// scripts/make_regression_goldens.py: torch-uncertainty 0.13.0, torchmetrics 1.9.0, scoringrules 0.10.0, uncertainty-toolbox 0.1.1,
    /// scipy 1.17.1. QCE is in f32 there.
    const GOLDENS: &str = include_str!("../../../tests/fixtures/regression.json");

    fn list(value: &serde_json::Value) -> Vec<f64> {
        value
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|one| one.as_f64().map_or_else(|| list(one), |one| vec![one]))
            .collect()
    }

    #[test]
    fn metrics_are_those_of_the_packages() {
        let cases: serde_json::Value = serde_json::from_str(GOLDENS).unwrap();
        let mut compared = std::collections::BTreeSet::new();
        for (name, case) in cases.as_object().unwrap() {
            let predicted =
                Numbers::new(list(&case["means"]), list(&case["variances"]), list(&case["numbers"])).unwrap();
            let found = evaluate(&of_all(&predicted.with_weights(list(&case["weights"])).unwrap()));
            for (key, expected) in case["metrics"].as_object().unwrap() {
                let value = found.iter().find(|(column, _)| column == key).unwrap().1.unwrap();
                let tolerance = if key == "qce" { 1e-6 } else { 1e-10 };
                let apart = (value - expected.as_f64().unwrap()).abs();
                assert!(apart < tolerance, "{name} {key}: {value} instead of {expected}");
                compared.insert(key.as_str());
            }
        }
        assert_eq!(compared.len(), NUMBER_METRICS.len(), "{compared:?}");
    }

    /// `python3 -c "from scipy.stats import *; x=[1,2,2,4,7]; y=[3,1,4,4,9]; print(pearsonr(x,y)[0], spearmanr(x,y)[0], rankdata(y))"`
    #[test]
    fn correlations_are_those_of_scipy() {
        let (x, y) = ([1.0, 2.0, 2.0, 4.0, 7.0], [3.0, 1.0, 4.0, 4.0, 9.0]);
        assert_eq!(ranks(&y), [2.0, 1.0, 3.5, 3.5, 5.0]);
        assert!((pearson(&x, &y).unwrap() - PEARSON).abs() < 1e-14, "{:?}", pearson(&x, &y));
        assert!((spearman(&x, &y).unwrap() - SPEARMAN).abs() < 1e-14, "{:?}", spearman(&x, &y));
        assert_eq!((pearson(&x, &[1.0; 5]), spearman(&x[..1], &y[..1])), (None, None));
    }

    const PEARSON: f64 = 0.8804296005407636;
    const SPEARMAN: f64 = 0.7631578947368421;
}
