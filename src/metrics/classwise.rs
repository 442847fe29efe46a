//! The calibration error of the probabilities of all classes, not only of the predicted one (Kull et al. 2019, "Beyond temperature
//! scaling", definition 3).

use super::{Better, Metric, Scope, Scores, Shown, Unit};

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
