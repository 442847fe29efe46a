//! The accuracy in which every class counts the same, however many samples it has.

use super::scores::mean;
use super::{Better, Metric, Resampled, Scope, Shown, Tally, Unit};

pub static BALANCED_ACCURACY: Metric = Metric {
    key: "balanced_accuracy",
    short: "balanced accuracy",
    about: "mean over the classes of the share of their samples classified correctly",
    definition: "mean of TP_c / (TP_c + FN_c) over the classes c that have samples",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: Some(Resampled::Tallied(balanced)),
    eval: |scores, average| balanced(&Tally::of(scores, average)),
};

pub(super) fn balanced(tally: &Tally) -> Option<f64> {
    let of_classes = tally.correct.iter().zip(&tally.labelled).filter(|(_, labelled)| **labelled > 0);
    mean(of_classes.map(|(correct, labelled)| *correct as f64 / *labelled as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    // scripts/make_class_goldens.py, scikit-learn 1.9.1
    #[test]
    fn the_numbers_are_those_of_scikit_learn() {
        for (classes, pairs, expected) in [
            (4, &[[0, 0], [0, 2], [1, 1], [2, 2], [2, 2], [2, 0]][..], 0.7222222222222222),
            (2, &[[0, 0], [0, 1], [1, 1], [1, 0], [1, 1], [1, 1]][..], 0.625),
        ] {
            let found = balanced(&Tally::of_samples(classes, pairs, 0..pairs.len())).unwrap();
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        assert_eq!(balanced(&Tally::of_samples(2, &[], 0..0)), None);
    }
}
