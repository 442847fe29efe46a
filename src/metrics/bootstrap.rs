//! Paired bootstrap: how sure the difference of two predictors on one test set is. Each resample draws N samples with
//! replacement, the same for both, and takes every metric again; binned ones from the resample's own bins.

use anyhow::{Result, ensure};
use rand::Rng;
use rayon::prelude::*;

use super::calibration::{self, BINS, bin_of};
use super::scores::labels;
use super::{Average, Metric, Scores, accuracy, brier, nll};
use crate::base::random::{Purpose, stream};
use crate::predictions::Predictions;

/// Usual number of resamples.
pub const RESAMPLES: u32 = 10_000;

/// The metrics that are compared, in the order of [`Totals::differences`].
static COMPARED: [&Metric; 4] = [&accuracy::ACCURACY, &nll::NLL, &brier::BRIER, &calibration::ECE];

/// One metric of two predictors.
pub struct Difference {
    pub metric: &'static Metric,
    pub average: Average,
    pub a: f64,
    pub b: f64,
    /// b − a.
    pub difference: f64,
    /// 95 % percentile interval of the difference (2.5 % and 97.5 % quantiles, interpolated linearly).
    pub interval: [f64; 2],
    /// Two-sided: 2 (1 + the smaller count of resampled differences on either side of 0, or at it) / (1 + resamples),
    /// at most 1.
    pub p: f64,
}

/// Compares `b` with `a` by each of `averages`. Equal seeds give equal numbers, on any number of threads.
///
/// Errors: no labels, other labels, samples or classes, a NaN or infinite logit, no resamples.
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
    let pairs = pairs(a, b, average);
    let draws: Vec<[f64; 4]> = (0..resamples).into_par_iter().map(|i| resample(&pairs, seed, i)).collect();
    let rows = COMPARED.iter().enumerate().filter_map(|(place, metric)| {
        let (a, b) = ((metric.eval)(a, average)?, (metric.eval)(b, average)?);
        let mut differences: Vec<f64> = draws.iter().map(|draw| draw[place]).collect();
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

/// What a sample adds to the totals of a resample.
struct Pair {
    /// Differences b − a of 1[correct], NLL and Brier score.
    differences: [f64; 3],
    /// Calibration bin and 1[correct] − confidence of a and b.
    calibration: [(u8, f64); 2],
}

fn pairs(a: &Scores, b: &Scores, average: Average) -> Vec<Pair> {
    let correct = |of: &Scores, i: usize| f64::from(u8::from(of.averaged(average).correct[i]));
    let calibration = |of: &Scores, i: usize| {
        let confidence = of.confidence(average)[i];
        (bin_of(confidence) as u8, correct(of, i) - confidence)
    };
    let (left, right) = (a.averaged(average), b.averaged(average));
    let pair = |i: usize| Pair {
        differences: [correct(b, i) - correct(a, i), right.nll[i] - left.nll[i], right.brier[i] - left.brier[i]],
        calibration: [calibration(a, i), calibration(b, i)],
    };
    (0..left.nll.len()).map(pair).collect()
}

/// Sums over the samples of a resample.
#[derive(Default)]
struct Totals {
    differences: [f64; 3],
    /// Per bin, of a and of b: n_b (accuracy_b − confidence_b).
    gaps: [[f64; BINS]; 2],
}

impl Totals {
    fn add(&mut self, pair: &Pair) {
        self.differences.iter_mut().zip(pair.differences).for_each(|(sum, difference)| *sum += difference);
        self.gaps.iter_mut().zip(pair.calibration).for_each(|(gaps, (bin, gap))| gaps[usize::from(bin)] += gap);
    }

    /// Differences of the metrics in [`COMPARED`].
    fn differences(&self, samples: usize) -> [f64; 4] {
        let [a, b] = self.gaps.map(|gaps| gaps.iter().map(|gap| gap.abs()).sum::<f64>());
        let [correct, nll, brier] = self.differences;
        [correct, nll, brier, b - a].map(|sum| sum / samples as f64)
    }
}

fn resample(pairs: &[Pair], seed: u64, resample: u32) -> [f64; 4] {
    let mut totals = Totals::default();
    drawn(pairs.len(), seed, resample).for_each(|i| totals.add(&pairs[i]));
    totals.differences(pairs.len())
}

/// The samples of a resample: N draws below N (from 64 bits each, uneven by N / 2^64).
fn drawn(samples: usize, seed: u64, resample: u32) -> impl Iterator<Item = usize> {
    let mut rng = stream(seed, Purpose::Bootstrap, &[u64::from(resample)]);
    (0..samples).map(move |_| ((u128::from(rng.next_u64()) * samples as u128) >> 64) as usize)
}

/// Quantile of sorted values, interpolated linearly between neighbours.
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
