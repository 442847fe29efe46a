//! The Brier score, summed over all classes and not divided by their number.

use super::scores::mean;
use super::{Average, Better, Metric, Resampled, Scope, Shown, Unit};

pub static BRIER: Metric = Metric {
    key: "brier",
    short: "Brier",
    about: "squared distance of the probabilities from the label, in [0, 2]",
    definition: "mean of sum_c (p_c - 1[y = c])^2",
    unit: Unit::One,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown { tables: &[Average::Probability], scaled: true, ..Shown::IN_FILES },
    resampled: Some(Resampled::Mean(|scores, average| scores.averaged(average).brier.clone())),
    eval: |scores, average| mean(scores.averaged(average).brier.iter().copied()),
};
