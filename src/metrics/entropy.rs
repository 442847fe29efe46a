//! The entropies of the averaged prediction and of the members' predictions. Their difference is the mutual information
//! between prediction and parameters (the uncertainty on which the members disagree).

use super::scores::mean;
use super::{Average, Better, Metric, Scope, Scores, Shown, Unit};

pub static PREDICTIVE: Metric = Metric {
    key: "predictive_entropy",
    short: "predictive entropy",
    about: "total uncertainty: entropy of the mean probabilities",
    definition: "mean of H[mean_k p_k]",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::Shared,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, _| mean(scores.uncertainty.predictive_entropy.iter().copied()),
};

pub static EXPECTED: Metric = Metric {
    key: "expected_entropy",
    short: "expected entropy",
    about: "aleatoric uncertainty: mean entropy of the members",
    definition: "mean of mean_k H[p_k]",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::Shared,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, _| mean(scores.uncertainty.expected_entropy.iter().copied()),
};

pub static MI: Metric = Metric {
    key: "mi",
    short: "MI",
    about: "epistemic uncertainty: mutual information; empty for one member",
    definition: "mean of H[mean_k p_k] - mean_k H[p_k]",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::Shared,
    shown: Shown { seeds: &[Average::Logit], ..Shown::IN_FILES },
    resampled: None,
    eval: |scores, _| mean(scores.mutual_information()?.iter().copied()),
};

pub static MI_CORRECT: Metric = Metric {
    key: "mi_correct",
    short: "MI correct",
    about: "mutual information over the correctly classified samples",
    definition: "mean of MI where argmax_c p_c = y; empty if there are none, or for one member",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::PerAverage,
    shown: Shown { tables: &[Average::Logit], ..Shown::IN_FILES },
    resampled: None,
    eval: |scores, average| mean_where(scores.mutual_information()?, scores, average, true),
};

pub static MI_WRONG: Metric = Metric {
    key: "mi_wrong",
    short: "MI wrong",
    about: "mutual information over the wrongly classified samples",
    definition: "mean of MI where argmax_c p_c differs from y; empty if there are none, or for one member",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::PerAverage,
    shown: Shown { tables: &[Average::Logit], ..Shown::IN_FILES },
    resampled: None,
    eval: |scores, average| mean_where(scores.mutual_information()?, scores, average, false),
};

pub static ENTROPY_CORRECT: Metric = Metric {
    key: "entropy_correct",
    short: "entropy correct",
    about: "predictive entropy over the correctly classified samples",
    definition: "mean of H[mean_k p_k] where argmax_c p_c = y; empty if there are none",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| mean_where(&scores.uncertainty.predictive_entropy, scores, average, true),
};

pub static ENTROPY_WRONG: Metric = Metric {
    key: "entropy_wrong",
    short: "entropy wrong",
    about: "predictive entropy over the wrongly classified samples",
    definition: "mean of H[mean_k p_k] where argmax_c p_c differs from y; empty if there are none",
    unit: Unit::Nats,
    better: Better::Neither,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| mean_where(&scores.uncertainty.predictive_entropy, scores, average, false),
};

fn mean_where(values: &[f64], scores: &Scores, average: Average, correct: bool) -> Option<f64> {
    let chosen = values.iter().zip(&scores.averaged(average).correct).filter(|(_, c)| **c == correct);
    mean(chosen.map(|(value, _)| *value))
}
