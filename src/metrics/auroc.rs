//! The quality of an uncertainty score as a detector of errors. It is the area under the ROC curve: the probability
//! that a wrongly classified sample has a higher score than a correctly classified one, where a tie counts half
//! (midranks).

use super::ranking::Ranking;
use super::{Average, Better, Metric, Scope, Scores, Shown, Unit};

pub static MI_ERROR: Metric = Metric {
    key: "auroc_mi_error",
    short: "AUROC of MI",
    about: "AUROC of mutual information for spotting errors",
    definition: "P(MI of a wrong sample > MI of a correct one), ties half; empty without both, or for one member",
    unit: Unit::One,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown { tables: &[Average::Logit], ..Shown::IN_FILES },
    resampled: None,
    eval: |scores, average| spots_errors(scores, average, scores.mutual_information()?),
};

pub static ENTROPY_ERROR: Metric = Metric {
    key: "auroc_entropy_error",
    short: "AUROC of entropy",
    about: "AUROC of predictive entropy for spotting errors",
    definition: "P(entropy of a wrong sample > entropy of a correct one), ties half; empty without both",
    unit: Unit::One,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| spots_errors(scores, average, &scores.uncertainty.predictive_entropy),
};

fn spots_errors(scores: &Scores, average: Average, uncertainty: &[f64]) -> Option<f64> {
    let correct = &scores.averaged(average).correct;
    let ranking = Ranking::new(uncertainty.iter().copied().zip(correct.iter().map(|correct| !correct)))?;
    Some(ranking.auroc())
}
