//! Temperature scaling (Guo et al. 2017): one positive number T that divides all logits, fitted to the NLL of held-out
//! predictions. The probability mean becomes mean_k softmax(z_k / T), and the logit mean softmax(mean_k z_k / T).

use anyhow::Result;
use rayon::prelude::*;

use super::sample::log_sum_exp;
use super::scores::labels;
use super::{Average, Better, Column, METRICS, Metric, PerAverage, Scores, Unit};
use crate::predictions::{Predictions, check_finite};

/// The range of temperatures that is searched. A value at either end is not a minimum; see [`Fit::at_bound`].
pub const BOUNDS: [f64; 2] = [0.01, 100.0];

/// The number of temperatures at which the search starts, evenly spaced in log T over [`BOUNDS`].
const GRID: usize = 17;

/// The part of the names of scaled columns.
pub const SUFFIX: &str = "ts";

/// Returns the metrics that are also reported after scaling, in the columns `<key>_ts_lm` and `<key>_ts_pm`.
pub fn scaled() -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().copied().filter(|metric| metric.shown.scaled)
}

/// The temperature with the least NLL on the predictions it was fitted to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub temperature: f64,
    /// The mean NLL at `temperature`, in nats.
    pub nll: f64,
    /// Whether the NLL still falls at an end of [`BOUNDS`], so that no temperature minimises it. This happens if all
    /// labels are right, or if the predictions are worse than chance.
    pub at_bound: bool,
}

/// The mean NLL and its derivative at one log T.
#[derive(Clone, Copy)]
struct Point {
    log_temperature: f64,
    nll: f64,
    slope: f64,
}

/// Finds the T in [`BOUNDS`] with the least mean NLL. With the logit mean, the NLL has only one minimum, because it is
/// convex in 1/T. With the probability mean, the minimum next to the best of 17 grid points is taken.
///
/// # Errors
/// Fails if the predictions have no labels or a logit is NaN or infinite; the message names the member and the sample.
pub fn fit(predictions: &Predictions, average: Average) -> Result<Fit> {
    let labels = labels(predictions)?;
    let nll = |log_temperature: f64| mean_nll(predictions, labels, average, log_temperature);
    let [low, high] = BOUNDS.map(f64::ln);
    let place = |i: usize| low + (high - low) * i as f64 / (GRID - 1) as f64;
    let grid: Vec<Point> = (0..GRID).map(|i| nll(place(i))).collect::<Result<_>>()?;
    let best = (1..GRID).fold(0, |best, i| if grid[i].nll < grid[best].nll { i } else { best });
    let ahead = if grid[best].slope > 0.0 { best.checked_sub(1) } else { Some(best + 1) };
    let beyond = ahead.and_then(|i| grid.get(i));
    let found = match beyond {
        Some(beyond) => descend(grid[best], *beyond, nll)?,
        None => grid[best],
    };
    predictions.expect_whole()?;
    Ok(Fit { temperature: found.log_temperature.exp(), nll: found.nll, at_bound: beyond.is_none() })
}

/// Finds the minimum between `inner` and `outer`. The NLL falls from `inner` towards `outer`, and at `outer` it is
/// higher or rises again. Uses the false position method on the slope (Illinois rule), and bisection while both slopes
/// have the same sign.
fn descend(mut inner: Point, mut outer: Point, nll: impl Fn(f64) -> Result<Point>) -> Result<Point> {
    let (mut inner_pull, mut outer_pull) = (inner.slope, outer.slope);
    let (mut kept_inner, mut kept_outer) = (false, false);
    while inner.slope.abs() > 1e-11 && (inner.log_temperature - outer.log_temperature).abs() > 1e-10 {
        let (a, b) = (inner.log_temperature, outer.log_temperature);
        let crosses = inner.slope * outer.slope < 0.0;
        let between =
            if crosses { (a * outer_pull - b * inner_pull) / (outer_pull - inner_pull) } else { (a + b) / 2.0 };
        let point = nll(between)?;
        if point.slope * inner.slope >= 0.0 && point.nll <= inner.nll {
            (inner, inner_pull) = (point, point.slope);
            outer_pull *= if kept_outer { 0.5 } else { 1.0 };
            (kept_inner, kept_outer) = (false, true);
        } else {
            (outer, outer_pull) = (point, point.slope);
            inner_pull *= if kept_inner { 0.5 } else { 1.0 };
            (kept_inner, kept_outer) = (true, false);
        }
        if outer.slope.abs() <= 1e-11 && outer.nll <= inner.nll {
            return Ok(outer);
        }
    }
    Ok(inner)
}

/// A sample with its label.
#[derive(Clone, Copy)]
struct Labelled {
    sample: usize,
    label: usize,
}

/// A number of a sample, and its derivative with respect to log T.
struct Term {
    value: f64,
    slope: f64,
}

fn mean_nll(predictions: &Predictions, labels: &[u32], average: Average, log_temperature: f64) -> Result<Point> {
    let scale = (-log_temperature).exp();
    let buffer = || vec![0.0; predictions.classes()];
    // The terms are collected and added in order, because a parallel sum would vary in its last digits from run to run.
    let terms: Vec<Term> = (0..predictions.samples())
        .into_par_iter()
        .map_init(buffer, |row, sample| {
            let of = Labelled { sample, label: labels[sample] as usize };
            match average {
                Average::Logit => logit_mean(predictions, of, scale, row),
                Average::Probability => probability_mean(predictions, of, scale, row),
            }
        })
        .collect::<Result<_>>()?;
    let samples = terms.len() as f64;
    let mean = |of: fn(&Term) -> f64| terms.iter().fold(0.0, |sum, term| sum + of(term)) / samples;
    Ok(Point { log_temperature, nll: mean(|term| term.value), slope: mean(|term| term.slope) })
}

/// Returns −log p_y of the logit mean and its derivative with respect to log T.
fn logit_mean(predictions: &Predictions, of: Labelled, scale: f64, row: &mut [f64]) -> Result<Term> {
    let Labelled { sample, label } = of;
    row.fill(0.0);
    for member in 0..predictions.members() {
        let logits = predictions.logits(member, sample);
        check_finite(logits, member, sample)?;
        let weight = predictions.weight(member);
        row.iter_mut().zip(logits).for_each(|(sum, logit)| *sum += weight * f64::from(*logit));
    }
    let scale = scale / predictions.total_weight();
    row.iter_mut().for_each(|logit| *logit *= scale);
    let Term { value, slope } = label_term(row, label);
    Ok(Term { value: -value, slope: -slope })
}

/// Returns −log mean_k p_ky and its derivative with respect to log T.
fn probability_mean(predictions: &Predictions, of: Labelled, scale: f64, row: &mut [f64]) -> Result<Term> {
    let Labelled { sample, label } = of;
    let (mut log_probabilities, mut slopes) = (vec![], vec![]);
    for member in 0..predictions.members() {
        let logits = predictions.logits(member, sample);
        check_finite(logits, member, sample)?;
        row.iter_mut().zip(logits).for_each(|(value, logit)| *value = f64::from(*logit) * scale);
        let Term { value: log_probability, slope } = label_term(row, label);
        log_probabilities.push(log_probability + predictions.weight(member).ln());
        slopes.push(slope);
    }
    let log_sum = log_sum_exp(&log_probabilities);
    let weights = log_probabilities.iter().map(|log_p| (log_p - log_sum).exp());
    let slope: f64 = weights.zip(&slopes).map(|(weight, slope)| weight * slope).sum();
    Ok(Term { value: predictions.total_weight().ln() - log_sum, slope: -slope })
}

/// Returns log p_y of scaled logits a and its derivative with respect to log T, Σ_c p_c a_c − a_y. Overwrites `scaled`.
fn label_term(scaled: &mut [f64], label: usize) -> Term {
    // Subtracting a_y first keeps the differences exact if logits are large.
    let of_label = scaled[label];
    scaled.iter_mut().for_each(|logit| *logit -= of_label);
    let largest = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (sum, weighted) = scaled.iter().fold((0.0, 0.0), |(sum, weighted), logit| {
        let weight = (logit - largest).exp();
        (sum + weight, weighted + weight * logit)
    });
    Term { value: -(largest + sum.ln()), slope: weighted / sum }
}

/// The fitted temperature of each average; `None` where the NLL has no minimum inside [`BOUNDS`].
pub(super) struct Scaling(PerAverage<Option<f64>>);

impl Scaling {
    /// Fits both temperatures on `validation`. A warning is logged where there is none.
    ///
    /// # Errors
    /// Fails if labels are missing, or a logit is NaN or infinite.
    pub fn fit(validation: &Predictions) -> Result<Scaling> {
        let of = |average| -> Result<Option<f64>> {
            let found = fit(validation, average)?;
            if found.at_bound {
                let ([low, high], average) = (BOUNDS, average.suffix());
                tracing::warn!("validation NLL ({average}) has no minimum for T in {low} to {high}: no scaling");
            }
            Ok((!found.at_bound).then_some(found.temperature))
        };
        Ok(Scaling(PerAverage { logit: of(Average::Logit)?, probability: of(Average::Probability)? }))
    }

    /// Returns the columns `temperature_*` and `<metric>_ts_*` of `test`, of each of [`scaled`]; those of an average without a temperature
    /// are empty.
    ///
    /// # Errors
    /// Fails if labels are missing, or a logit is NaN or infinite.
    pub fn columns(&self, test: &Predictions) -> Result<Vec<(String, Option<f64>)>> {
        let temperatures = &self.0;
        let scores = Scores::compute_scaled(test, PerAverage::each(|average| temperatures.of(average).unwrap_or(1.0)))?;
        let of = |average: Average| (format!("temperature_{}", average.suffix()), *temperatures.of(average));
        let mut columns: Vec<_> = Average::ALL.into_iter().map(of).collect();
        for metric in scaled() {
            for average in Average::ALL {
                let value = temperatures.of(average).and_then(|_| (metric.eval)(&scores, average));
                columns.push((column_name(metric, SUFFIX, average), value));
            }
        }
        Ok(columns)
    }
}

/// Returns the column of a metric after calibration.
pub(super) fn column_name(metric: &Metric, suffix: &str, average: Average) -> String {
    format!("{}_{suffix}_{}", metric.key, average.suffix())
}

/// Returns the meaning of a column that holds a temperature.
pub(super) fn of_column(column: &str) -> Option<Column> {
    let temperature = Average::ALL.iter().any(|average| format!("temperature_{}", average.suffix()) == column);
    let definition = "T of least NLL on validation predictions, 0.01 to 100";
    temperature.then_some(Column { short: "temperature", definition, unit: Unit::One, better: Better::Neither })
}

#[cfg(test)]
mod tests;
