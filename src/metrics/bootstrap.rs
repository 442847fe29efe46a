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
mod tests {
    use super::*;
    use crate::metrics::value;
    use crate::predictions::Shape;

    const SHAPE: Shape = Shape { members: 2, samples: 400, classes: 4 };

    fn labels() -> Vec<u32> {
        (0..400).map(|i| i * i / 3 % 4).collect()
    }

    /// Logits that favour the label by `skill`, on top of waves whose phase differs between predictors.
    fn logits(skill: f64, phase: f64) -> Vec<f32> {
        let labels = labels();
        let mut logits = vec![];
        for (k, i) in (0..2).flat_map(|k| (0..400).map(move |i| (f64::from(k), i))) {
            let x = i as f64;
            let wave = |c: f64| 2.0 * (phase + 1.3 * x + 0.7 * c * (x + 1.0)).sin() + (k + x * c).sin();
            let bonus = |c: u32| if c == labels[i] { skill } else { 0.0 };
            logits.extend((0..4).map(|c| (wave(f64::from(c)) + bonus(c)) as f32));
        }
        logits
    }

    fn predictions(skill: f64, phase: f64) -> Predictions {
        Predictions::new(SHAPE, logits(skill, phase), labels()).unwrap()
    }

    fn picked(of: &Predictions, order: &[usize]) -> Scores {
        let rows = (0..of.members()).flat_map(|k| order.iter().flat_map(move |i| of.logits(k, *i).to_vec()));
        let labels = order.iter().map(|i| of.labels().unwrap()[*i]).collect();
        Scores::compute(&Predictions::new(of.shape(), rows.collect(), labels).unwrap()).unwrap()
    }

    #[test]
    fn a_resample_equals_scoring_the_drawn_samples() {
        let (a, b) = (predictions(1.0, 0.0), predictions(1.4, 0.5));
        for average in Average::ALL {
            let parts = parts(&Scores::compute(&a).unwrap(), &Scores::compute(&b).unwrap(), average);
            for i in 0..3 {
                let order: Vec<_> = drawn(400, 7, i).collect();
                let (a, b) = (picked(&a, &order), picked(&b, &order));
                for ((metric, _), got) in parts.iter().zip(resample(&parts, 7, i)) {
                    let want = value(&b, metric.key, average).zip(value(&a, metric.key, average)).map(|(b, a)| b - a);
                    let same = want.map_or(got.is_nan(), |want| (got - want).abs() < 1e-12);
                    assert!(same, "{}: {got}, not {want:?}", metric.key);
                }
            }
        }
    }

    // The difference of means has standard error sd(d) / √N. Its interval is ± 1.96 standard errors, and p is that of a
    // normal variable.
    #[test]
    fn intervals_agree_with_the_normal_approximation() {
        let (a, b) = (predictions(1.0, 0.0), predictions(1.1, 0.5));
        let found = compare(&a, &b, &[Average::Probability], 4000, 1).unwrap();
        let (a, b) = (Scores::compute(&a).unwrap(), Scores::compute(&b).unwrap());
        let nll = |of: &Scores| of.averaged(Average::Probability).nll.clone();
        let differences: Vec<f64> = nll(&b).iter().zip(nll(&a)).map(|(b, a)| b - a).collect();
        let mean = differences.iter().sum::<f64>() / 400.0;
        let error = (differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 400.0 / 400.0).sqrt();
        let row = &found[1];
        assert_eq!(row.metric.key, "nll");
        assert!((row.difference - mean).abs() < 1e-12);
        let reach = row.interval.map(|end| (end - mean) / error);
        assert!((reach[0] + 1.96).abs() < 0.12 && (reach[1] - 1.96).abs() < 0.12, "{reach:?}");
        assert_eq!(row.p < 0.05, row.interval[0] > 0.0 || row.interval[1] < 0.0);
    }

    #[test]
    fn a_better_predictor_is_told_from_an_equal_one() {
        let a = predictions(1.0, 0.0);
        let better = compare(&a, &predictions(4.0, 0.0), &[Average::Logit], 999, 1).unwrap();
        assert!(better[0].difference > 0.0 && better[0].interval[0] > 0.0 && better[1].interval[1] < 0.0);
        assert_eq!((better[0].p, better[1].p), (0.002, 0.002));
        for same in compare(&a, &a, &[Average::Logit], 99, 1).unwrap() {
            assert_eq!((same.difference, same.interval, same.p), (0.0, [0.0, 0.0], 1.0));
        }
    }

    #[test]
    fn a_seed_fixes_the_numbers() {
        let (a, b) = (predictions(1.0, 0.0), predictions(1.4, 0.5));
        let run = |seed| compare(&a, &b, &[Average::Logit], 50, seed).unwrap().into_iter().map(|row| row.interval);
        assert!(run(3).eq(run(3)) && !run(3).eq(run(4)));
        let counts = drawn(400, 3, 0).fold(vec![0; 400], |mut counts, i| {
            counts[i] += 1;
            counts
        });
        // A sample is left out with probability 1/e. Five standard deviations are about 39 samples.
        let left_out = counts.iter().filter(|count| **count == 0).count();
        assert!(left_out.abs_diff(147) < 39, "{left_out}");
    }

    #[test]
    fn quantiles_and_p_values_by_hand() {
        assert_eq!([0.0, 0.25, 0.9, 1.0].map(|share| quantile(&[1.0, 2.0, 4.0], share)), [1.0, 1.5, 3.6, 4.0]);
        assert_eq!(quantile(&[5.0], 0.975), 5.0);
        assert_eq!(p_value(&[-1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 0.5);
        assert_eq!(p_value(&[0.0, 0.0, 0.0]), 1.0);
    }

    #[test]
    fn other_test_sets_are_refused() {
        let a = predictions(1.0, 0.0);
        let message = |b: &Predictions| compare(&a, b, &[Average::Logit], 10, 1).err().unwrap().to_string();
        let mut other = labels();
        other[5] = (other[5] + 1) % 4;
        assert!(message(&Predictions::new(SHAPE, logits(1.0, 0.0), other).unwrap()).contains("sample 5 has label"));
        let fewer = Shape { samples: 399, ..SHAPE };
        let shorter = Predictions::new(fewer, logits(1.0, 0.0)[..3192].to_vec(), labels()[..399].to_vec()).unwrap();
        assert!(message(&shorter).contains("400 samples of 4 classes and 399 of 4"));
        assert!(message(&Predictions::unlabelled(SHAPE, logits(1.0, 0.0)).unwrap()).contains("no labels"));
        assert!(compare(&a, &a, &[Average::Logit], 0, 1).is_err());
    }
}
