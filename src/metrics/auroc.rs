//! Areas under the ROC curve: the probability that a positive sample has a higher score than a negative one, where a tie counts
//! half (midranks). Of two classes the second is the positive one; as a detector of errors, an uncertainty has the wrongly
//! classified samples as positives.
//!
//! A [`Ranking`] of samples of two kinds by a score gives the areas and thresholds of the ROC and precision-recall curves.
//! Counts are integers and ties stay together, so no result depends on the order of samples.

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

/// The numbers of positive and negative samples that share one score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tied {
    positives: u64,
    negatives: u64,
}

/// Samples in groups of equal score, highest first. There is at least one sample of each kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    groups: Vec<Tied>,
    total: Tied,
}

impl Ranking {
    /// Ranks pairs of score and whether the sample is positive. Returns `None` unless both kinds occur. Scores must not
    /// be NaN.
    pub fn new(samples: impl IntoIterator<Item = (f64, bool)>) -> Option<Self> {
        let mut samples: Vec<_> = samples.into_iter().collect();
        samples.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let count = |tied: &[(f64, bool)]| {
            let positives = tied.iter().filter(|(_, positive)| *positive).count() as u64;
            Tied { positives, negatives: tied.len() as u64 - positives }
        };
        let groups: Vec<_> = samples.chunk_by(|a, b| a.0 == b.0).map(count).collect();
        let total = count(&samples);
        (total.positives > 0 && total.negatives > 0).then_some(Self { groups, total })
    }

    /// Returns the same samples with the two kinds exchanged and the scores negated.
    pub fn flipped(&self) -> Self {
        let flip = |tied: &Tied| Tied { positives: tied.negatives, negatives: tied.positives };
        Self { groups: self.groups.iter().rev().map(flip).collect(), total: flip(&self.total) }
    }

    /// Returns the probability that a positive has a higher score than a negative, where a tie counts half. It is the
    /// Mann-Whitney U, counted in halves so that it is exact.
    pub fn auroc(&self) -> f64 {
        let twice_u = self.cuts().map(|(tied, above)| {
            let below = self.total.negatives - above.negatives;
            u128::from(tied.positives) * u128::from(2 * below + tied.negatives)
        });
        twice_u.sum::<u128>() as f64 / 2.0 / (self.total.positives as f64 * self.total.negatives as f64)
    }

    /// Returns the average precision Σ (recall_i − recall_{i−1}) precision_i over falling thresholds, without
    /// interpolation.
    pub fn average_precision(&self) -> f64 {
        let terms = self.cuts().map(|(tied, above)| {
            let precision = above.positives as f64 / (above.positives + above.negatives) as f64;
            tied.positives as f64 * precision
        });
        terms.sum::<f64>() / self.total.positives as f64
    }

    /// Returns the false positive rate at the first falling threshold that finds at least `percent` of the positives.
    pub fn false_positive_rate_at(&self, percent: u64) -> f64 {
        let enough = |above: &Tied| 100 * above.positives >= percent * self.total.positives;
        let cut = self.cuts().map(|(_, above)| above).find(enough).unwrap_or(self.total);
        cut.negatives as f64 / self.total.negatives as f64
    }

    /// Returns the smallest 0.5 (1 − TPR) + 0.5 FPR over all thresholds. It is at most 0.5, the error of calling no
    /// sample positive.
    pub fn detection_error(&self) -> f64 {
        let error = |above: Tied| {
            let missed = 1.0 - above.positives as f64 / self.total.positives as f64;
            0.5 * missed + 0.5 * above.negatives as f64 / self.total.negatives as f64
        };
        self.cuts().map(|(_, above)| error(above)).fold(0.5, f64::min)
    }

    /// Returns each group with the counts of all samples in it and above it.
    fn cuts(&self) -> impl Iterator<Item = (Tied, Tied)> {
        self.groups.iter().scan(Tied::default(), |above, tied| {
            above.positives += tied.positives;
            above.negatives += tied.negatives;
            Some((*tied, *above))
        })
    }
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

    fn example() -> Ranking {
        let inside = [0.1, 0.2, 0.2, 0.35, 0.4, 0.05, 0.3, 0.15, 0.25, 0.6].map(|s| (s, false));
        let outside = [0.3, 0.5, 0.7, 0.2, 0.9, 0.45, 0.8, 0.65].map(|s| (s, true));
        Ranking::new(inside.into_iter().chain(outside)).unwrap()
    }

    // import numpy as np; from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
    // i = [.1,.2,.2,.35,.4,.05,.3,.15,.25,.6]; o = [.3,.5,.7,.2,.9,.45,.8,.65]
    // y, s = np.r_[np.zeros(10), np.ones(8)], np.r_[i, o]
    // roc_auc_score(y, s)                                                    # 0.85625
    // average_precision_score(y, s); average_precision_score(1 - y, -s)      # 0.857521645021645, 0.8634054834054833
    // fpr, tpr, _ = roc_curve(y, s, drop_intermediate=False)
    // fpr[np.argmax(tpr >= .95)]; (.5 * (1 - tpr) + .5 * fpr).min()          # 0.7, 0.175
    #[test]
    fn curves_match_scikit_learn() {
        let ranking = example();
        let got = [
            ranking.auroc(),
            ranking.average_precision(),
            ranking.flipped().average_precision(),
            ranking.false_positive_rate_at(95),
            ranking.detection_error(),
        ];
        let want = [0.85625, 0.857521645021645, 0.8634054834054833, 0.7, 0.175];
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-14), "{got:?}, not {want:?}");
    }

    #[test]
    fn flipping_keeps_the_area_and_twice_is_nothing() {
        assert_eq!(example().flipped().auroc(), example().auroc());
        assert_eq!(example().flipped().flipped(), example());
    }

    #[test]
    fn one_kind_alone_has_no_ranking() {
        assert_eq!(Ranking::new([(0.1, true), (0.2, true)]), None);
        assert_eq!(Ranking::new([(0.1, false)]), None);
        let tied = Ranking::new([(0.3, true), (0.3, false)]).unwrap();
        assert_eq!((tied.auroc(), tied.detection_error(), tied.false_positive_rate_at(95)), (0.5, 0.5, 1.0));
    }

    // 19 of 20 positives are exactly 95 %, so the threshold of the 19th is enough.
    #[test]
    fn ninety_five_percent_is_counted_exactly() {
        let positives = (0..20).map(|i| (f64::from(20 - i) + 0.5, true));
        let negatives = [(1.9, false), (1.2, false)];
        assert_eq!(Ranking::new(positives.chain(negatives)).unwrap().false_positive_rate_at(95), 0.0);
    }
}
