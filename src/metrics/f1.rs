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
    super::scores::mean((0..tally.labelled.len()).filter_map(|class| tally.f1(class)))
}

fn of_shown(tally: &Tally) -> Option<f64> {
    let shown = (0..tally.labelled.len()).filter(|class| tally.labelled[*class] > 0);
    super::scores::mean(shown.filter_map(|class| tally.f1(class)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::balanced_accuracy::balanced;

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
}
