//! F1, the harmonic mean of precision and recall: of the positive class, and as the mean over all classes.

use super::{Better, Metric, Resampled, Scope, Shown, Tally, Unit};

pub static F1: Metric = Metric {
    key: "f1",
    short: "F1",
    about: "F1 of the second of two classes, which is the positive one",
    definition: "2 TP / (2 TP + FP + FN) of class 1; empty unless there are two classes, and without positives",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown { sets: &["glue-mrpc", "glue-qqp"], ..Shown::IN_FILES },
    resampled: Some(Resampled::Tallied(positive)),
    eval: |scores, average| positive(&Tally::of(scores, average)),
};

pub static F1_MACRO: Metric = Metric {
    key: "f1_macro",
    short: "macro F1",
    about: "mean over the classes of their F1",
    definition: "mean of 2 TP_c / (2 TP_c + FP_c + FN_c) over the classes c that are labels or predicted",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: Some(Resampled::Tallied(of_all)),
    eval: |scores, average| of_all(&Tally::of(scores, average)),
};

fn positive(tally: &Tally) -> Option<f64> {
    if tally.labelled.len() == 2 { tally.f1(1) } else { None }
}

fn of_all(tally: &Tally) -> Option<f64> {
    super::scores::mean((0..tally.labelled.len()).filter_map(|class| tally.f1(class)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // from sklearn.metrics import f1_score; y = [0, 0, 1, 2, 2, 2]; p = [0, 2, 1, 2, 2, 0]
    // f1_score(y, p, average="macro") = 0.7222222222222222; with labels 0 and 1 alone, y = [0, 0, 1, 1, 1], p = [0, 1, 1, 0, 1]:
    // f1_score(y, p) = 0.6666666666666666, average="macro": 0.5833333333333333
    #[test]
    fn the_numbers_are_those_of_scikit_learn() {
        let tally = |classes, pairs: &[[u32; 2]]| Tally::of_samples(classes, pairs, 0..pairs.len());
        let three = tally(4, &[[0, 0], [0, 2], [1, 1], [2, 2], [2, 2], [2, 0]]);
        assert!((of_all(&three).unwrap() - 0.7222222222222222).abs() < 1e-12);
        assert_eq!(positive(&three), None);
        let two = tally(2, &[[0, 0], [0, 1], [1, 1], [1, 0], [1, 1]]);
        assert!((positive(&two).unwrap() - 0.6666666666666666).abs() < 1e-12);
        assert!((of_all(&two).unwrap() - 0.5833333333333333).abs() < 1e-12);
        let none = tally(2, &[[0, 0], [0, 0]]);
        assert_eq!((positive(&none), of_all(&none)), (None, Some(1.0)));
    }
}
