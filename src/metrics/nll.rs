//! Negative log-likelihood of the label.

use super::scores::mean;
use super::{Better, Metric, Scope, Unit};

pub static NLL: Metric = Metric {
    key: "nll",
    about: "negative log-likelihood of the labels",
    definition: "mean of -log p_y by log-sum-exp of the logits, unclamped",
    unit: Unit::Nats,
    better: Better::Lower,
    scope: Scope::PerAverage,
    eval: |scores, average| mean(scores.averaged(average).nll.iter().copied()),
};
