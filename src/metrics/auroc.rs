//! How well an uncertainty score spots errors: the area under the ROC curve, which is the probability that a wrongly
//! classified sample scores higher than a correctly classified one, ties counting half (midranks).

use super::{Average, Better, Metric, Scope, Scores, Unit};

pub static MI_ERROR: Metric = Metric {
    key: "auroc_mi_error",
    about: "AUROC of mutual information for spotting errors",
    definition: "P(MI of a wrong sample > MI of a correct one), ties half; empty without both, or for one member",
    unit: Unit::One,
    better: Better::Higher,
    scope: Scope::PerAverage,
    eval: |scores, average| spots_errors(scores, average, &scores.spread.as_ref()?.mutual_information),
};

pub static ENTROPY_ERROR: Metric = Metric {
    key: "auroc_entropy_error",
    about: "AUROC of predictive entropy for spotting errors",
    definition: "P(entropy of a wrong sample > entropy of a correct one), ties half; empty without both",
    unit: Unit::One,
    better: Better::Higher,
    scope: Scope::PerAverage,
    eval: |scores, average| spots_errors(scores, average, &scores.predictive_entropy),
};

fn spots_errors(scores: &Scores, average: Average, uncertainty: &[f64]) -> Option<f64> {
    let correct = &scores.averaged(average).correct;
    auroc(uncertainty.iter().copied().zip(correct.iter().map(|correct| !correct)))
}

/// Area under the ROC curve of (score, is positive) pairs; `None` unless both kinds are there. Scores are not NaN.
pub fn auroc(samples: impl IntoIterator<Item = (f64, bool)>) -> Option<f64> {
    let mut samples: Vec<_> = samples.into_iter().collect();
    samples.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // Mann-Whitney U counted in halves, so that it stays exact.
    let (mut positives, mut negatives, mut twice_u) = (0u64, 0u64, 0u128);
    for tied in samples.chunk_by(|a, b| a.0 == b.0) {
        let tied_positives = tied.iter().filter(|(_, positive)| *positive).count() as u64;
        let tied_negatives = tied.len() as u64 - tied_positives;
        twice_u += u128::from(tied_positives) * u128::from(2 * negatives + tied_negatives);
        positives += tied_positives;
        negatives += tied_negatives;
    }
    let pairs = positives as f64 * negatives as f64;
    (pairs > 0.0).then(|| twice_u as f64 / 2.0 / pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    // from sklearn.metrics import roc_auc_score
    // i = [.1,.2,.2,.35,.4,.05,.3,.15,.25,.6]; o = [.3,.5,.7,.2,.9,.45,.8,.65]
    // roc_auc_score([0]*10 + [1]*8, i + o)  # 0.85625
    #[test]
    fn ties_take_midranks() {
        let inside = [0.1, 0.2, 0.2, 0.35, 0.4, 0.05, 0.3, 0.15, 0.25, 0.6].map(|s| (s, false));
        let outside = [0.3, 0.5, 0.7, 0.2, 0.9, 0.45, 0.8, 0.65].map(|s| (s, true));
        let area = auroc(inside.into_iter().chain(outside)).unwrap();
        assert!((area - 0.85625).abs() < 1e-15, "{area}");
    }

    #[test]
    fn one_kind_alone_has_no_area() {
        assert_eq!(auroc([(0.1, true), (0.2, true)]), None);
        assert_eq!(auroc([(0.1, false)]), None);
        assert_eq!(auroc([(0.3, true), (0.3, false)]), Some(0.5));
    }
}
