//! The correlation coefficient of Matthews, for any number of classes (Gorodkin 2004): the correlation of labels and
//! predictions as indicators of classes.

use super::{Better, Metric, Resampled, Scope, Shown, Tally, Unit};

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

    // from sklearn.metrics import matthews_corrcoef
    // matthews_corrcoef([0, 0, 1, 2, 2, 2], [0, 2, 1, 2, 2, 0]) = 0.4545454545454545
    // matthews_corrcoef([0, 0, 1, 1, 1], [0, 1, 1, 0, 1]) = 0.16666666666666666
    // matthews_corrcoef([0, 1, 1], [1, 1, 1]) = 0.0
    #[test]
    fn the_numbers_are_those_of_scikit_learn() {
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
