//! Calibration: how far confidence is from accuracy, over 15 equal bins of confidence, each open below and closed
//! above (Guo et al. 2017, "On Calibration of Modern Neural Networks"). Empty bins count for nothing.

use super::{Average, Better, Metric, Scope, Scores, Unit};

/// Number of equal bins of (0, 1].
pub const BINS: usize = 15;

/// The samples whose confidence falls into one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    pub count: usize,
    /// Means over the bin's samples; 0 for an empty bin.
    pub accuracy: f64,
    pub confidence: f64,
}

impl Bin {
    /// |accuracy − confidence|.
    pub fn gap(&self) -> f64 {
        (self.accuracy - self.confidence).abs()
    }
}

pub static ECE: Metric = Metric {
    key: "ece",
    about: "expected calibration error",
    definition: "sum over 15 bins (lo, hi] of n_b / N |accuracy_b - confidence_b|",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    eval: |scores, average| {
        let bins = reliability(scores, average);
        let samples: usize = bins.iter().map(|bin| bin.count).sum();
        let weighted: f64 = bins.iter().map(|bin| bin.count as f64 * bin.gap()).sum();
        (samples > 0).then(|| weighted / samples as f64)
    },
};

pub static MCE: Metric = Metric {
    key: "mce",
    about: "maximum calibration error",
    definition: "largest |accuracy_b - confidence_b| over the non-empty ones of 15 bins (lo, hi]",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    eval: |scores, average| {
        let bins = reliability(scores, average).into_iter().filter(|bin| bin.count > 0);
        bins.map(|bin| bin.gap()).reduce(f64::max)
    },
};

/// The bins of a reliability diagram, lowest confidence first.
pub fn reliability(scores: &Scores, average: Average) -> [Bin; BINS] {
    let averaged = scores.averaged(average);
    let mut bins = [Bin::default(); BINS];
    for (confidence, correct) in averaged.confidence.iter().zip(&averaged.correct) {
        let bin = &mut bins[bin_of(*confidence)];
        bin.count += 1;
        bin.confidence += confidence;
        bin.accuracy += f64::from(u8::from(*correct));
    }
    for bin in bins.iter_mut().filter(|bin| bin.count > 0) {
        bin.confidence /= bin.count as f64;
        bin.accuracy /= bin.count as f64;
    }
    bins
}

/// The bin b with b/15 < confidence ≤ (b + 1)/15; rounding may carry confidence a hair above 1.
fn bin_of(confidence: f64) -> usize {
    (1..BINS).take_while(|edge| confidence > *edge as f64 / BINS as f64).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_closed_above() {
        assert_eq!([0.0, 1.0 / 15.0, 0.067, 14.0 / 15.0, 1.0, 1.0 + 1e-15].map(bin_of), [0, 0, 1, 13, 14, 14]);
        for edge in 1..=BINS {
            assert_eq!(bin_of(edge as f64 / BINS as f64), edge - 1);
        }
    }
}
