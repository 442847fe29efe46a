//! Calibration: the distance between confidence and accuracy over 15 equal bins of confidence, each open below and
//! closed above (Guo et al. 2017, "On Calibration of Modern Neural Networks"). Empty bins do not count.

use std::f64::consts::TAU;

use super::{Average, Better, Metric, Resampled, Scope, Scores, Shown, Unit};

pub use super::bins::{BINS, bin_of};

/// The samples whose confidence falls into one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    pub count: usize,
    /// The mean over the samples of the bin. 0 for an empty bin, like `confidence`.
    pub accuracy: f64,
    pub confidence: f64,
}

impl Bin {
    /// Returns |accuracy − confidence|.
    pub fn gap(&self) -> f64 {
        (self.accuracy - self.confidence).abs()
    }
}

pub static ECE: Metric = Metric {
    key: "ece",
    short: "ECE",
    about: "expected calibration error",
    definition: "sum over 15 bins (lo, hi] of n_b / N |accuracy_b - confidence_b|",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown { tables: &Average::ALL, seeds: &Average::ALL, scaled: true, ..Shown::IN_FILES },
    resampled: Some(Resampled::Binned(gaps)),
    eval: |scores, average| weighted(&reliability(scores, average), Bin::gap),
};

pub static ACE: Metric = Metric {
    key: "ace",
    short: "ACE",
    about: "adaptive calibration error: bins of equal count",
    definition: "sum over 15 bins of equal count (the first N mod 15 one larger), by falling confidence with ties by \
                 index, of n_b / N |accuracy_b - confidence_b|",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| weighted(&equal_count(scores, average), Bin::gap),
};

pub static RMSCE: Metric = Metric {
    key: "rmsce",
    short: "RMSCE",
    about: "root mean square calibration error",
    definition: "square root of the sum over 15 bins (lo, hi] of n_b / N (accuracy_b - confidence_b)^2",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| weighted(&reliability(scores, average), |bin| bin.gap().powi(2)).map(f64::sqrt),
};

pub static MCE: Metric = Metric {
    key: "mce",
    short: "MCE",
    about: "maximum calibration error",
    definition: "largest |accuracy_b - confidence_b| over the non-empty ones of 15 bins (lo, hi]",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| {
        let bins = reliability(scores, average).into_iter().filter(|bin| bin.count > 0);
        bins.map(|bin| bin.gap()).reduce(f64::max)
    },
};

/// Returns the bin of every sample and its gap 1[correct] − confidence.
fn gaps(scores: &Scores, average: Average) -> Vec<(u8, f64)> {
    let (confidence, correct) = (scores.confidence(average), &scores.averaged(average).correct);
    let gap = |i: usize| (bin_of(confidence[i]) as u8, f64::from(u8::from(correct[i])) - confidence[i]);
    (0..correct.len()).map(gap).collect()
}

/// Returns the bins of a reliability diagram, from the lowest confidence to the highest.
pub fn reliability(scores: &Scores, average: Average) -> [Bin; BINS] {
    let confidence = scores.confidence(average);
    let places = (0..confidence.len()).map(|i| (bin_of(confidence[i]), i));
    fill(scores, average, places)
}

/// Bins with equal numbers of samples, from the highest confidence to the lowest.
fn equal_count(scores: &Scores, average: Average) -> [Bin; BINS] {
    let order = scores.most_confident_first(average);
    let (size, larger) = (order.len() / BINS, order.len() % BINS);
    let sizes = (0..BINS).flat_map(|bin| std::iter::repeat_n(bin, size + usize::from(bin < larger)));
    fill(scores, average, sizes.zip(order))
}

/// Fills the bins from pairs of bin and sample.
fn fill(scores: &Scores, average: Average, places: impl Iterator<Item = (usize, usize)>) -> [Bin; BINS] {
    let (confidence, correct) = (scores.confidence(average), &scores.averaged(average).correct);
    let mut bins = [Bin::default(); BINS];
    for (bin, sample) in places {
        bins[bin].count += 1;
        bins[bin].confidence += confidence[sample];
        bins[bin].accuracy += f64::from(u8::from(correct[sample]));
    }
    for bin in bins.iter_mut().filter(|bin| bin.count > 0) {
        bin.confidence /= bin.count as f64;
        bin.accuracy /= bin.count as f64;
    }
    bins
}

/// Returns the mean of `value` over all samples, where each sample has the value of its bin. `None` if there are no
/// samples.
fn weighted(bins: &[Bin; BINS], value: impl Fn(&Bin) -> f64) -> Option<f64> {
    let samples: usize = bins.iter().map(|bin| bin.count).sum();
    let sum: f64 = bins.iter().map(|bin| bin.count as f64 * value(bin)).sum();
    (samples > 0).then(|| sum / samples as f64)
}

/// The calibration error of the probabilities of all classes, not only of the predicted one (Kull et al. 2019, "Beyond temperature
/// scaling", definition 3).
pub static CLASSWISE: Metric = Metric {
    key: "classwise_ece",
    short: "class-wise ECE",
    about: "class-wise calibration error: mean over the classes of the ECE of their probability",
    definition: "mean over the classes c of sum over 15 bins (lo, hi] of p_c of n_b / N |share of class c - mean p_c|",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown { scaled: true, ..Shown::IN_FILES },
    resampled: None,
    eval: |scores: &Scores, average| scores.class_gaps.of(average).error(),
};

/// The root mean square calibration error without the bias of bins that hold few samples (Kumar et al. 2019, "Verified Uncertainty
/// Calibration", section 5): within a bin, the variance of the accuracy is subtracted from the squared gap.
pub static DEBIASED: Metric = Metric {
    key: "rmsce_debiased",
    short: "debiased RMSCE",
    about: "root mean square calibration error, without the bias of small bins",
    definition: "square root of the sum over 15 bins of equal count, equal confidences in one bin, of n_b / N ((accuracy_b - \
                 confidence_b)^2 - accuracy_b (1 - accuracy_b) / (n_b - 1)), or 0 if that is below 0; bins of one sample \
                 count 0",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown { scaled: true, ..Shown::IN_FILES },
    resampled: None,
    eval: debiased,
};

fn debiased(scores: &Scores, average: Average) -> Option<f64> {
    let mut order = scores.most_confident_first(average);
    order.reverse();
    let (confidence, correct) = (scores.confidence(average), &scores.averaged(average).correct);
    let sorted: Vec<f64> = order.iter().map(|i| confidence[*i]).collect();
    let edges = edges(&sorted);
    let mut square = 0.0;
    let mut start = 0;
    for edge in edges {
        let end = start + sorted[start..].partition_point(|value| *value <= edge);
        square += (end - start) as f64 * bin_error(&sorted[start..end], order[start..end].iter().map(|i| correct[*i]));
        start = end;
    }
    (!sorted.is_empty()).then(|| (square / sorted.len() as f64).max(0.0).sqrt())
}

/// Returns the upper edges of bins with about equal counts of rising confidences: between two parts, the middle of their neighbours.
fn edges(sorted: &[f64]) -> Vec<f64> {
    let (count, bins) = (sorted.len(), BINS.min(sorted.len()));
    let mut edges: Vec<f64> = vec![];
    let mut end = 0;
    for bin in 0..bins.saturating_sub(1) {
        end += count / bins + usize::from(bin < count % bins);
        edges.push((sorted[end - 1] + sorted[end]) / 2.0);
    }
    edges.push(f64::INFINITY);
    edges.dedup();
    edges
}

/// Returns the squared gap of a bin without the variance of its accuracy.
fn bin_error(confidence: &[f64], correct: impl Iterator<Item = bool>) -> f64 {
    let count = confidence.len() as f64;
    if confidence.len() < 2 {
        return 0.0;
    }
    let accuracy = correct.filter(|right| *right).count() as f64 / count;
    let gap = confidence.iter().sum::<f64>() / count - accuracy;
    gap * gap - accuracy * (1.0 - accuracy) / (count - 1.0)
}

/// The number of steps of the grid over [0, 1] on which gaps are smoothed.
const STEPS: usize = 1000;

/// The number of halvings of [0, 1] that find σ, as the authors' package `relplot` does.
const HALVINGS: usize = 10;

/// The smallest width that is tried; half a step of the grid cannot be told from none.
const SMALLEST: f64 = 1e-3;

/// Smooth ECE (Błasiok & Nakkiran 2023, "Smooth ECE", section 3): in place of bins, a Gaussian kernel of width σ, reflected at 0 and 1,
/// smooths the gaps over the confidence. The width is the one at which the error equals it, so that nothing is to be chosen.
pub static SMOOTH: Metric = Metric {
    key: "smooth_ece",
    short: "smooth ECE",
    about: "smooth calibration error: a kernel in place of bins",
    definition: "integral over t in [0, 1] of |mean of K_s(t, confidence) (correct - confidence)| with the Gaussian kernel K_s \
                 reflected at 0 and 1, at the width s that equals it (10 halvings)",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown { scaled: true, ..Shown::IN_FILES },
    resampled: None,
    eval: smooth,
};

fn smooth(scores: &Scores, average: Average) -> Option<f64> {
    let (confidence, correct) = (scores.confidence(average), &scores.averaged(average).correct);
    let gaps = confidence.iter().zip(correct).map(|(p, right)| (*p, f64::from(u8::from(*right)) - p));
    let grid = on_grid(gaps, confidence.len());
    (!confidence.is_empty()).then(|| fixed_point(&grid))
}

/// Returns the mean gaps at the points of the grid, `[STEPS + 1]`. A gap between two points is shared by them.
fn on_grid(gaps: impl Iterator<Item = (f64, f64)>, count: usize) -> Vec<f64> {
    let mut grid = vec![0.0; STEPS + 1];
    for (confidence, gap) in gaps {
        let place = confidence.clamp(0.0, 1.0) * STEPS as f64;
        let point = (place as usize).min(STEPS - 1);
        let share = place - point as f64;
        grid[point] += gap * (1.0 - share) / count as f64;
        grid[point + 1] += gap * share / count as f64;
    }
    grid
}

/// Returns the error at the smallest width, of those that halvings reach, that is not below it.
fn fixed_point(grid: &[f64]) -> f64 {
    let (mut wide, mut narrow) = (1.0, 0.0);
    let mut of_wide = smoothed(grid, wide);
    for _ in 0..HALVINGS {
        let middle = (wide + narrow) / 2.0;
        let of_middle = if middle < SMALLEST { f64::INFINITY } else { smoothed(grid, middle) };
        if middle < of_middle {
            narrow = middle;
        } else {
            (wide, of_wide) = (middle, of_middle);
        }
    }
    of_wide
}

/// Returns the integral of |gaps smoothed with width σ|. The line that is mirrored at 0 and at 1 repeats after two lengths of the grid, so the
/// kernel is laid around one such period.
fn smoothed(grid: &[f64], sigma: f64) -> f64 {
    const PERIOD: usize = 2 * STEPS;
    let scale = sigma * STEPS as f64;
    let height = 1.0 / (TAU.sqrt() * sigma);
    let mut kernel = vec![0.0; PERIOD];
    kernel[0] = height;
    // Beyond six widths, the kernel is below 2e-8 of its height.
    for distance in 1..=(6.0 * scale).ceil() as usize {
        let weight = height * (-0.5 * (distance as f64 / scale).powi(2)).exp();
        let point = distance % PERIOD;
        kernel[point] += weight;
        kernel[(PERIOD - point) % PERIOD] += weight;
    }
    let mut sums = vec![0.0; PERIOD];
    for (from, gap) in grid.iter().enumerate().filter(|(_, gap)| **gap != 0.0) {
        let (before, behind) = sums.split_at_mut(from);
        let (near, around) = kernel.split_at(PERIOD - from);
        for (sums, weights) in [(behind, near), (before, around)] {
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += gap * weight);
        }
    }
    // A point inside stands for a whole step and has the mass of its mirror image, too. An end, which is its own image, stands for half of
    // a step, whose mass the reflection has doubled.
    let ends = sums[0].abs() + sums[STEPS].abs();
    let inside: f64 = (1..STEPS).map(|point| (sums[point] + sums[PERIOD - point]).abs()).sum();
    (ends + inside) / STEPS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of one gap g, the kernel keeps the whole mass: the error is |g| at any width.
    #[test]
    fn one_gap_keeps_its_mass() {
        for place in [0.0, 0.003, 0.5, 1.0] {
            let grid = on_grid([(place, -0.4)].into_iter(), 1);
            for sigma in [0.002, 0.05, 1.0] {
                assert!((smoothed(&grid, sigma) - 0.4).abs() < 1e-6, "{place} {sigma} {}", smoothed(&grid, sigma));
            }
        }
    }

    // Gaps of opposite sign at one place cancel at every width; far apart they do not while the kernel is narrow.
    #[test]
    fn opposite_gaps_cancel_only_where_the_kernel_joins_them() {
        assert!(smoothed(&on_grid([(0.5, 0.3), (0.5, -0.3)].into_iter(), 2), 0.01) < 1e-15);
        let apart = on_grid([(0.2, 0.3), (0.8, -0.3)].into_iter(), 2);
        assert!((smoothed(&apart, 0.01) - 0.3).abs() < 1e-6 && smoothed(&apart, 1.0) < 0.05);
    }
}
