//! The root mean square calibration error without the bias of bins that hold few samples (Kumar et al. 2019, "Verified Uncertainty
//! Calibration", section 5): within a bin, the variance of the accuracy is subtracted from the squared gap.

use super::bins::BINS;
use super::{Average, Better, Metric, Scope, Scores, Shown, Unit};

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
    eval: error,
};

fn error(scores: &Scores, average: Average) -> Option<f64> {
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
