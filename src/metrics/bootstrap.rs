//! Paired bootstrap: the certainty of the difference between two predictors on one test set. Each resample draws N
//! samples with replacement, the same ones for both predictors, and recomputes every metric on them. A binned metric is
//! recomputed from the bins of the resample.

use anyhow::{Result, ensure};
use rand::Rng;
use rayon::prelude::*;

use super::calibration::BINS;
use super::scores::labels;
use super::{Average, METRICS, Metric, Resampled, Scores, Tally};
use crate::base::random::{Purpose, stream};
use crate::predictions::Predictions;

/// The usual number of resamples.
pub const RESAMPLES: u32 = 10_000;

/// The comparison of two predictors by one metric.
pub struct Difference {
    pub metric: &'static Metric,
    pub average: Average,
    pub a: f64,
    pub b: f64,
    /// The value of b minus the value of a.
    pub difference: f64,
    /// The 95 % percentile interval of the difference (from the 2.5 % to the 97.5 % quantile, interpolated linearly).
    pub interval: [f64; 2],
    /// The two-sided p-value: 2 (1 + k) / (1 + resamples), at most 1. k is the number of resampled differences ≤ 0 or
    /// that of resampled differences ≥ 0, whichever is smaller.
    pub p: f64,
}

/// Compares `b` with `a` by each of `averages`. Equal seeds give equal numbers, with any number of threads.
///
/// # Errors
/// Fails if labels are missing, the labels, samples or classes of the two differ, a logit is NaN or infinite, or
/// `resamples` is 0.
pub fn compare(
    a: &Predictions,
    b: &Predictions,
    averages: &[Average],
    resamples: u32,
    seed: u64,
) -> Result<Vec<Difference>> {
    check(a, b)?;
    ensure!(resamples > 0, "bootstrap: 0 resamples: must be at least 1");
    let (a, b) = (Scores::compute(a)?, Scores::compute(b)?);
    let rows = averages.iter().flat_map(|average| differences(&a, &b, *average, resamples, seed));
    Ok(rows.collect())
}

fn differences(a: &Scores, b: &Scores, average: Average, resamples: u32, seed: u64) -> Vec<Difference> {
    let parts = parts(a, b, average);
    let draws: Vec<Vec<f64>> = (0..resamples).into_par_iter().map(|i| resample(&parts, seed, i)).collect();
    let rows = parts.iter().enumerate().filter_map(|(place, (metric, _))| {
        let (a, b) = ((metric.eval)(a, average)?, (metric.eval)(b, average)?);
        // A metric that is not defined on a resample is NaN there.
        let mut differences: Vec<f64> =
            draws.iter().map(|draw| draw[place]).filter(|value| value.is_finite()).collect();
        if differences.is_empty() {
            return None;
        }
        differences.sort_unstable_by(f64::total_cmp);
        let interval = [0.025, 0.975].map(|share| quantile(&differences, share));
        Some(Difference { metric, average, a, b, difference: b - a, interval, p: p_value(&differences) })
    });
    rows.collect()
}

fn check(a: &Predictions, b: &Predictions) -> Result<()> {
    let (left, right) = (a.shape(), b.shape());
    ensure!(
        left.samples == right.samples && left.classes == right.classes,
        "predictions have {} samples of {} classes and {} of {}: must be of one test set",
        left.samples,
        left.classes,
        right.samples,
        right.classes
    );
    let (left, right) = (labels(a)?, labels(b)?);
    if let Some(sample) = (0..left.len()).find(|i| left[*i] != right[*i]) {
        let (left, right) = (left[sample], right[sample]);
        anyhow::bail!("sample {sample} has label {left} and {right}: must be of one test set, in one order");
    }
    Ok(())
}

/// The contribution of every sample to the difference b − a of one metric.
enum Part {
    Mean(Vec<f64>),
    /// The bin and the gap of every sample, of a and of b.
    Binned([Vec<(u8, f64)>; 2]),
    /// The label and the predicted class of every sample, of a and of b, the number of classes, and the metric of their counts.
    Tallied([Vec<[u32; 2]>; 2], usize, fn(&Tally) -> Option<f64>),
}

/// Returns the metrics that are compared, each with the contributions of the samples.
fn parts(a: &Scores, b: &Scores, average: Average) -> Vec<(&'static Metric, Part)> {
    let part = |resampled: Resampled| match resampled {
        Resampled::Mean(of) => Part::Mean(of(b, average).iter().zip(of(a, average)).map(|(b, a)| b - a).collect()),
        Resampled::Binned(of) => Part::Binned([of(a, average), of(b, average)]),
        Resampled::Tallied(of) => {
            let samples = [a, b].map(|scores| scores.labels_with_guesses(average));
            Part::Tallied(samples, a.uncertainty.shape.classes, of)
        }
    };
    METRICS.iter().filter_map(|metric| Some((*metric, part(metric.resampled?)))).collect()
}

impl Part {
    fn samples(&self) -> usize {
        match self {
            Part::Mean(differences) => differences.len(),
            Part::Binned([a, _]) => a.len(),
            Part::Tallied([a, _], ..) => a.len(),
        }
    }

    /// Returns the difference of the metric on the samples `drawn`; NaN if it is not defined on them.
    fn difference(&self, drawn: &[usize]) -> f64 {
        let total = match self {
            Part::Mean(differences) => drawn.iter().map(|i| differences[*i]).sum::<f64>(),
            Part::Binned([a, b]) => sum_of_gaps(b, drawn) - sum_of_gaps(a, drawn),
            Part::Tallied(samples, classes, of) => {
                let value = |samples: &[[u32; 2]]| of(&Tally::of_samples(*classes, samples, drawn.iter().copied()));
                let [a, b] = samples.each_ref().map(|samples| value(samples));
                return b.zip(a).map_or(f64::NAN, |(b, a)| b - a);
            }
        };
        total / drawn.len() as f64
    }
}

/// Returns Σ over bins of |n (accuracy − confidence)|.
fn sum_of_gaps(samples: &[(u8, f64)], drawn: &[usize]) -> f64 {
    let mut gaps = [0.0; BINS];
    for (bin, gap) in drawn.iter().map(|i| samples[*i]) {
        gaps[usize::from(bin)] += gap;
    }
    gaps.iter().map(|gap: &f64| gap.abs()).sum()
}

fn resample(parts: &[(&Metric, Part)], seed: u64, resample: u32) -> Vec<f64> {
    let Some(samples) = parts.first().map(|(_, part)| part.samples()) else { return vec![] };
    let drawn: Vec<usize> = drawn(samples, seed, resample).collect();
    parts.iter().map(|(_, part)| part.difference(&drawn)).collect()
}

/// Returns the indices of the samples in a resample: N draws from 0 to N − 1. Each draw uses 64 random bits, so its
/// probability is uneven by at most N / 2^64.
fn drawn(samples: usize, seed: u64, resample: u32) -> impl Iterator<Item = usize> {
    let mut rng = stream(seed, Purpose::Bootstrap, &[u64::from(resample)]);
    (0..samples).map(move |_| ((u128::from(rng.next_u64()) * samples as u128) >> 64) as usize)
}

/// Returns the quantile of sorted values, interpolated linearly between neighbours.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, rest) = (place as usize, place.fract());
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + rest * (sorted[above] - sorted[below])
}

fn p_value(differences: &[f64]) -> f64 {
    let below = differences.iter().filter(|difference| **difference <= 0.0).count();
    let above = differences.iter().filter(|difference| **difference >= 0.0).count();
    (2.0 * (1 + below.min(above)) as f64 / (1 + differences.len()) as f64).min(1.0)
}

#[cfg(test)]
mod tests;
