//! The share of samples whose label is the most probable class, or among the five most probable.

use super::scores::mean;
use super::{Average, Better, Metric, Resampled, Scope, Shown, Unit};

pub static ACCURACY: Metric = Metric {
    key: "accuracy",
    short: "accuracy",
    about: "share of samples classified correctly",
    definition: "mean of 1[argmax_c p_c = y]; the first of equal classes is taken",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown { tables: &Average::ALL, seeds: &Average::ALL, ..Shown::IN_FILES },
    resampled: Some(Resampled::Mean(|scores, average| ones(&scores.averaged(average).correct).collect())),
    eval: |scores, average| mean(ones(&scores.averaged(average).correct)),
};

pub static TOP5: Metric = Metric {
    key: "top5",
    short: "top-5",
    about: "share of samples whose label is among the five most probable classes; empty for five classes or fewer",
    definition: "mean of 1[fewer than five classes ahead of y]",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| mean(ones(scores.averaged(average).in_top5.as_ref()?)),
};

/// Returns 1 for each hit and 0 for each miss.
fn ones(hits: &[bool]) -> impl Iterator<Item = f64> {
    hits.iter().map(|hit| f64::from(u8::from(*hit)))
}
