//! The negative log-likelihood of the label.

use super::scores::mean;
use super::{Average, Better, Metric, Resampled, Scope, Shown, Unit};

pub static NLL: Metric = Metric {
    key: "nll",
    short: "NLL",
    about: "negative log-likelihood of the labels",
    definition: "mean of -log p_y by log-sum-exp of the logits, unclamped",
    unit: Unit::Nats,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown { tables: &Average::ALL, seeds: &Average::ALL, scaled: true, ..Shown::IN_FILES },
    resampled: Some(Resampled::Mean(|scores, average| scores.averaged(average).nll.clone())),
    eval: |scores, average| mean(scores.averaged(average).nll.iter().copied()),
};
