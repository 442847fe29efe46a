//! Ranks samples of two kinds by a score and measures the areas and thresholds of the ROC and precision-recall curves.
//! Counts are integers and ties stay together, so no result depends on the order of samples.

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
