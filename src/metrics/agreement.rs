//! Measures of agreement that follow from the counts of labels and predictions by class: F1, balanced accuracy, and the coefficient of
//! Matthews.

use super::scores::mean;
use super::{Better, Metric, Resampled, Scope, Shown, Tally, Unit};

/// The harmonic mean of precision and recall, of the positive class.
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

/// The mean of F1 over all classes.
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

/// The mean of F1 over the classes that have samples.
pub static F1_MACRO_SHOWN: Metric = Metric {
    key: "f1_macro_shown",
    short: "macro F1 of the shown",
    about: "mean of F1 over the classes that have samples, as WILDS reports iWildCam",
    definition: "mean of 2 TP_c / (2 TP_c + FP_c + FN_c) over the classes c that are labels",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown { sets: &["iwildcam", "iwildcam-id"], ..Shown::IN_FILES },
    resampled: Some(Resampled::Tallied(of_shown)),
    eval: |scores, average| of_shown(&Tally::of(scores, average)),
};

fn positive(tally: &Tally) -> Option<f64> {
    if tally.labelled.len() == 2 { tally.f1(1) } else { None }
}

fn of_all(tally: &Tally) -> Option<f64> {
    mean((0..tally.labelled.len()).filter_map(|class| tally.f1(class)))
}

fn of_shown(tally: &Tally) -> Option<f64> {
    let shown = (0..tally.labelled.len()).filter(|class| tally.labelled[*class] > 0);
    mean(shown.filter_map(|class| tally.f1(class)))
}

/// The accuracy in which every class counts the same, however many samples it has.
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

/// The correlation coefficient of Matthews, for any number of classes (Gorodkin 2004): the correlation of labels and predictions as
/// indicators of classes.
pub static MATTHEWS: Metric = Metric {
    key: "matthews",
    short: "Matthews",
    about: "correlation coefficient of labels and predicted classes (Matthews)",
    definition: "(n s - sum_c p_c t_c) / sqrt((n^2 - sum_c p_c^2) (n^2 - sum_c t_c^2)) of n samples, s correct ones, p_c \
                 predictions and t_c labels of class c; 0 if all labels or all predictions are one class",
    unit: Unit::One,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown { sets: &["glue-cola"], ..Shown::IN_FILES },
    resampled: Some(Resampled::Tallied(matthews)),
    eval: |scores, average| matthews(&Tally::of(scores, average)),
};

fn matthews(tally: &Tally) -> Option<f64> {
    let count: f64 = tally.labelled.iter().sum::<u64>() as f64;
    let correct: f64 = tally.correct.iter().sum::<u64>() as f64;
    let product = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| *a as f64 * *b as f64).sum::<f64>();
    let covariance = count * correct - product(&tally.predicted, &tally.labelled);
    let [predicted, labelled] = [&tally.predicted, &tally.labelled].map(|of| count * count - product(of, of));
    if count == 0.0 {
        return None;
    }
    // The convention where one of them is constant, by which GLUE is scored.
    Some(if predicted * labelled > 0.0 { covariance / (predicted.sqrt() * labelled.sqrt()) } else { 0.0 })
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
        assert_eq!(of_shown(&three), of_all(&three), "every predicted class has samples");
        assert_eq!((positive(&none), of_all(&none)), (None, Some(1.0)));
    }

    /// The accuracy, the macro recall and the macro F1 of the package `wilds` (2.0.0) on made-up predictions, some of which are of
    /// classes without samples (scripts/make_wilds_fixtures.py).
    #[test]
    fn iwildcam_is_measured_as_wilds_does() {
        let text = include_str!("../../tests/fixtures/data/iwildcam/expected.json");
        let expected: serde_json::Value = serde_json::from_str(text).unwrap();
        let made_up = &expected["evaluated"];
        let of = |key: &str| -> Vec<u32> { serde_json::from_value(made_up[key].clone()).unwrap() };
        let pairs: Vec<[u32; 2]> = of("y").into_iter().zip(of("predicted")).map(|(y, p)| [y, p]).collect();
        let tally = Tally::of_samples(182, &pairs, 0..pairs.len());
        let number = |key: &str| made_up[key].as_f64().unwrap();
        // The package rounds to f32.
        assert!((of_shown(&tally).unwrap() - number("F1-macro_all")).abs() < 1e-6);
        assert!(of_all(&tally).unwrap() < of_shown(&tally).unwrap());
        assert!((balanced(&tally).unwrap() - number("recall-macro_all")).abs() < 1e-6);
        let right = pairs.iter().filter(|[y, p]| y == p).count() as f64 / pairs.len() as f64;
        assert!((right - number("acc_avg")).abs() < 1e-6);
    }

    // scripts/make_class_goldens.py, scikit-learn 1.9.1
    #[test]
    fn balanced_accuracy_is_that_of_scikit_learn() {
        for (classes, pairs, expected) in [
            (4, &[[0, 0], [0, 2], [1, 1], [2, 2], [2, 2], [2, 0]][..], 0.7222222222222222),
            (2, &[[0, 0], [0, 1], [1, 1], [1, 0], [1, 1], [1, 1]][..], 0.625),
        ] {
            let found = balanced(&Tally::of_samples(classes, pairs, 0..pairs.len())).unwrap();
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        assert_eq!(balanced(&Tally::of_samples(2, &[], 0..0)), None);
    }

    // from sklearn.metrics import matthews_corrcoef
    // matthews_corrcoef([0, 0, 1, 2, 2, 2], [0, 2, 1, 2, 2, 0]) = 0.4545454545454545
    // matthews_corrcoef([0, 0, 1, 1, 1], [0, 1, 1, 0, 1]) = 0.16666666666666666
    // matthews_corrcoef([0, 1, 1], [1, 1, 1]) = 0.0
    #[test]
    fn matthews_is_that_of_scikit_learn() {
        for (classes, pairs, expected) in [
            (4, &[[0, 0], [0, 2], [1, 1], [2, 2], [2, 2], [2, 0]][..], 0.4545454545454545),
            (2, &[[0, 0], [0, 1], [1, 1], [1, 0], [1, 1]][..], 0.16666666666666666),
            (2, &[[0, 1], [1, 1], [1, 1]][..], 0.0),
            (2, &[[0, 1], [1, 0]][..], -1.0),
        ] {
            let found = matthews(&Tally::of_samples(classes, pairs, 0..pairs.len())).unwrap();
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }
}
