//! The differences between members in function space. All metrics are empty for a single member.

use super::scores::mean;
use super::{Better, Metric, Scope, Shown, Unit};

pub static DIVERSITY_KL: Metric = Metric {
    key: "diversity_kl",
    short: "diversity",
    about: "divergence of the members from their mean (Bella, appendix A)",
    definition: "mean of mean_k KL(mean_l p_l || p_k)",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::Shared,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, _| mean(scores.uncertainty.spread.as_ref()?.diversity_kl.iter().copied()),
};

pub static PAIRWISE_KL: Metric = Metric {
    key: "pairwise_kl",
    short: "pairwise KL",
    about: "divergence of the members from each other",
    definition: "mean of KL(p_k || p_l) over ordered pairs k != l",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::Shared,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, _| mean(scores.uncertainty.spread.as_ref()?.pairwise_kl.iter().copied()),
};

pub static DISAGREEMENT: Metric = Metric {
    key: "disagreement",
    short: "disagreement",
    about: "share of member pairs that predict different classes",
    definition: "mean of 1[argmax p_k != argmax p_l] over pairs k < l",
    unit: Unit::Fraction,
    better: Better::Neither,
    scope: Scope::Shared,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, _| mean(scores.uncertainty.spread.as_ref()?.disagreement.iter().copied()),
};
