//! Areas under the ROC curve: the probability that a positive sample has a higher score than a negative one, where a tie counts
//! half (midranks). Of two classes the second is the positive one; as a detector of errors, an uncertainty has the wrongly
//! classified samples as positives.

use super::ranking::Ranking;
use super::{Average, Better, Metric, Scope, Scores, Shown, Unit};

pub static AUROC: Metric = Metric {
    key: "auroc",
    short: "AUROC",
    about: "AUROC of the probability of the second of two classes, which is the positive one",
    definition: "P(p_1 of a sample of class 1 > p_1 of one of class 0), ties half; empty unless there are two classes with samples",
    unit: Unit::One,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: separates,
};

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

fn separates(scores: &Scores, average: Average) -> Option<f64> {
    // Probabilities near 0 or 1 round to equal ones, which their log odds do not.
    let log_odds = scores.uncertainty.guesses.of(average).log_odds.as_ref()?;
    let samples = log_odds.iter().copied().zip(scores.labels.iter().map(|label| *label == 1));
    Some(Ranking::new(samples)?.auroc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::{Predictions, Shape};

    // scripts/make_class_goldens.py, scikit-learn 1.9.1: roc_auc_score of the softmax of these logits
    #[test]
    fn two_classes_are_separated_as_scikit_learn_says() {
        let labels: Vec<u32> = (0..40).map(|i: u32| i * i % 7 % 2).collect();
        let logit = |i: u32| ((i * 5 % 11) as f32 - 5.0 + 2.0 * labels[i as usize] as f32) / 3.0;
        let logits: Vec<f32> = (0..40).flat_map(|i| [0.25, logit(i)]).collect();
        let shape = Shape { members: 1, samples: 40, classes: 2 };
        let scores = Scores::compute(&Predictions::new(shape, logits, labels.clone()).unwrap()).unwrap();
        for average in Average::ALL {
            let found = separates(&scores, average).unwrap();
            assert!((found - 0.6410658307210031).abs() < 1e-12, "{found}");
        }
    }

    #[test]
    fn certain_samples_keep_their_order() {
        let shape = |members| Shape { members, samples: 4, classes: 2 };
        let of = |members, logits: &[f32]| {
            let predictions = Predictions::new(shape(members), logits.to_vec(), vec![0, 1, 0, 1]).unwrap();
            let scores = Scores::compute(&predictions).unwrap();
            Average::ALL.map(|average| separates(&scores, average))
        };
        // All of the second class's probabilities round to 1, then all to 0, then those of one class each.
        for logits in [[0.0, 50.0, 0.0, 60.0, 0.0, 45.0, 0.0, 70.0], [50.0, 0.0, 40.0, 0.0, 60.0, 0.0, 45.0, 0.0]] {
            assert_eq!(of(1, &logits), [Some(1.0); 2]);
            assert_eq!(of(2, &[logits, logits].concat()), [Some(1.0); 2]);
        }
    }

    #[test]
    fn three_classes_and_one_class_have_none() {
        let of = |classes, labels: Vec<u32>| {
            let shape = Shape { members: 1, samples: 2, classes };
            let logits = (0..2 * classes).map(|i| i as f32).collect();
            separates(&Scores::compute(&Predictions::new(shape, logits, labels).unwrap()).unwrap(), Average::Logit)
        };
        assert_eq!((of(3, vec![0, 1]), of(2, vec![1, 1])), (None, None));
    }
}
