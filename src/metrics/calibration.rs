//! Calibration: the distance between confidence and accuracy over 15 equal bins of confidence, each open below and
//! closed above (Guo et al. 2017, "On Calibration of Modern Neural Networks"). Empty bins do not count.

pub use super::bins::{BINS, bin_of};
use super::{Average, Better, Metric, Resampled, Scope, Scores, Shown, Unit};

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
