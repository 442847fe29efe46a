//! Tests of the metrics: golden numbers, cases worked by hand, and properties that hold for any predictions.

use super::*;
use crate::predictions::{Predictions, Shape};

fn scores(members: usize, labels: &[u32], logits: Vec<f32>) -> Scores {
    let samples = labels.len();
    let classes = logits.len() / members / samples;
    let shape = Shape { members, samples, classes };
    let predictions = Predictions::new(shape, logits, labels.to_vec()).unwrap();
    Scores::compute(&predictions).unwrap()
}

fn value(scores: &Scores, column: &str) -> Option<f64> {
    let found = evaluate(scores).into_iter().find(|(name, _)| name == column);
    found.unwrap_or_else(|| panic!("no column {column}")).1
}

/// Checks values with a tolerance, because inputs are f32 roundings of the f64 numbers that the golden values come
/// from.
fn assert_values(scores: &Scores, tolerance: f64, expected: &[(&str, f64)]) {
    for (column, want) in expected {
        let got = value(scores, column).unwrap_or_else(|| panic!("{column} is empty"));
        assert!((got - want).abs() < tolerance, "{column}: {got}, not {want}");
    }
}

#[rustfmt::skip]
const THREE_MEMBERS: [f32; 54] = [
    0.0, 0.6, -0.55, -1.78, -0.91, -1.98, 0.12, 2.68, -0.98,
    -1.24, 0.98, 0.71, 0.21, -1.86, -0.06, 1.39, -2.69, -0.92,
    -3.8, -2.58, -3.68, -0.47, -2.53, 0.54, 0.31, -0.37, -5.03,
    -1.08, -0.1, 0.23, -3.06, -0.96, -1.96, -1.62, 2.12, -1.62,
    -0.07, 1.77, -1.17, -0.22, 0.22, 0.13, -2.45, 0.15, 2.72,
    -3.09, 1.72, 0.24, -1.28, 4.0, 1.52, -2.4, 0.15, 1.15,
];

// import numpy as np                                # L: THREE_MEMBERS in f64, [3, 6, 3]; y = [0,1,2,1,0,2]
// from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
// P = np.exp(L) / np.exp(L).sum(-1, keepdims=True); z = L.mean(0)
// pm = P.mean(0); lm = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
// H = lambda p: -(p * np.log(p)).sum(-1); mi = H(pm) - H(P).mean(0)
// for p in lm, pm:
//     wrong = p.argmax(1) != y; log_loss(y, p); ((p - np.eye(3)[y])**2).sum(1).mean()
//     mi[~wrong].mean(); mi[wrong].mean(); roc_auc_score(wrong, mi); roc_auc_score(wrong, H(pm))
// np.mean([(pm * np.log(pm / p)).sum(-1) for p in P])                                        # diversity_kl
// np.mean([(P[j] * np.log(P[j] / P[l])).sum(-1) for j in range(3) for l in range(3) if j != l])  # pairwise_kl
// def selective(p, y):
//     n, conf, right = len(y), p.max(1), p.argmax(1) == y; o = np.argsort(-conf, kind="stable"); i = np.arange(1, n + 1)
//     e = np.cumsum(~right[o]); k = -(-np.array([80, 90]) * n // 100); ok = i[100 * e <= 5 * i]
//     gap = lambda b: abs((right[b] - conf[b]).sum()); b = np.ceil(conf * 15) - 1; bins = [b == v for v in np.unique(b)]
//     return ((e / i).mean(), np.trapezoid(e / n) / (n - 1), 1 - e[k - 1] / k, max([0, *ok]) / n,     # aurc, augrc, …
//             sum(map(gap, np.array_split(o, 15))) / n, sum(gap(b)**2 / b.sum() / n for b in bins)**.5)  # ace, rmsce
// sklearn.metrics: matthews_corrcoef(y, p.argmax(1)); f1_score(y, p.argmax(1), average="macro")
// torchmetrics multiclass_calibration_error(p, y, 3, 15, norm="l1" | "max") gives the same ECE and MCE to 1e-7.
#[test]
fn three_members_match_the_golden_numbers() {
    let scores = scores(3, &[0, 1, 2, 1, 0, 2], THREE_MEMBERS.to_vec());
    let expected = [
        ("accuracy_pm", 1.0 / 6.0),
        ("accuracy_lm", 1.0 / 6.0),
        ("nll_pm", 1.2151707325360597),
        ("nll_lm", 1.5387181571486692),
        ("brier_pm", 0.7675763090105807),
        ("brier_lm", 0.9346738924967962),
        ("ece_pm", 0.3412896761451105),
        ("ece_lm", 0.41335775156965826),
        ("mce_pm", 0.6585249391601081),
        ("mce_lm", 0.7040613190946112),
        ("predictive_entropy", 0.9951210423561783),
        ("expected_entropy", 0.6778461219371215),
        ("mi", 0.3172749204190569),
        ("mi_correct_lm", 0.08089171248558802),
        ("mi_wrong_pm", 0.36455156200575073),
        ("auroc_mi_error_lm", 0.8),
        ("auroc_entropy_error_pm", 1.0),
        ("diversity_kl", 0.5374213556692364),
        ("pairwise_kl", 1.28204441413244),
        ("disagreement", 2.0 / 3.0),
        ("ace_lm", 0.5497058983972226),
        ("ace_pm", 0.48519083370829225),
        ("rmsce_lm", 0.4858403609351432),
        ("rmsce_pm", 0.40364239096131843),
        ("aurc_lm", 0.8416666666666667),
        ("aurc_pm", 0.7583333333333333),
        ("augrc_lm", 0.4666666666666666),
        ("augrc_pm", 0.4333333333333333),
        ("matthews_pm", -0.3872983346207417),
        ("f1_macro_lm", 0.09523809523809523),
    ];
    assert_values(&scores, 3e-7, &expected);
    assert_eq!(value(&scores, "top5_lm"), None);
}

// As above, with w = np.array([.2, .5, .3]), mean = lambda a: np.tensordot(w, a, 1), pm = mean(P), z = mean(L), and for pairs
// (j, k), j != k, the weights w[j] * w[k] over their sum: pairwise_kl of P[j], P[k], and disagreement of their argmax.
#[test]
fn weighted_members_match_the_golden_numbers() {
    let shape = Shape { members: 3, samples: 6, classes: 3 };
    let predictions = Predictions::new(shape, THREE_MEMBERS.to_vec(), vec![0, 1, 2, 1, 0, 2]).unwrap();
    // Only the ratios of weights count.
    let scores = Scores::compute(&predictions.with_weights(vec![2.0, 5.0, 3.0]).unwrap()).unwrap();
    let expected = [
        ("accuracy_pm", 1.0 / 6.0),
        ("nll_lm", 1.8472117167688318),
        ("nll_pm", 1.3797300372384427),
        ("brier_lm", 1.0809683778701769),
        ("brier_pm", 0.872940155635891),
        ("predictive_entropy", 0.9690489458770069),
        ("expected_entropy", 0.6794975761449781),
        ("mi", 0.28955136973202866),
        ("diversity_kl", 0.4910765431143595),
        ("pairwise_kl", 1.259077278784497),
        ("disagreement", 0.6881720430107527),
    ];
    assert_values(&scores, 3e-7, &expected);
    let energy = scores.uncertainty.energy.iter().sum::<f64>() / 6.0;
    assert!((energy + 0.671211716768832).abs() < 3e-7, "{energy}");
}

#[test]
fn equal_weights_change_no_bit_and_a_weight_of_0_removes_a_member() {
    let shape = Shape { members: 3, samples: 6, classes: 3 };
    let labels = [0, 1, 2, 1, 0, 2];
    let weighted = |weights: [f64; 3]| {
        let predictions = Predictions::new(shape, THREE_MEMBERS.to_vec(), labels.to_vec()).unwrap();
        Scores::compute(&predictions.with_weights(weights.to_vec()).unwrap()).unwrap()
    };
    assert_eq!(scores(3, &labels, THREE_MEMBERS.to_vec()), weighted([1.0; 3]));
    let two = scores(2, &labels, THREE_MEMBERS[..36].to_vec());
    let removed = weighted([1.0, 1.0, 0.0]);
    assert_eq!(removed.outcomes, two.outcomes);
    assert_eq!(removed.uncertainty.spread, two.uncertainty.spread);
    // A single member with a weight cannot disagree.
    let alone = weighted([0.0, 1.0, 0.0]).uncertainty.spread.unwrap();
    for values in [alone.mutual_information, alone.pairwise_kl, alone.disagreement] {
        assert!(values.iter().all(|value| value.abs() < 1e-12), "{values:?}");
    }
}

#[test]
fn equal_members_do_not_disagree_at_all() {
    for (members, classes) in [(2, 2), (3, 10), (5, 7), (7, 1000)] {
        let logit = |i: usize| 4.0 * ((i * i + 3 * i) as f32).sin();
        let one: Vec<f32> = (0..40 * classes).map(logit).collect();
        let labels: Vec<u32> = (0..40).map(|i| i % classes as u32).collect();
        let spread = scores(members, &labels, one.repeat(members)).uncertainty.spread.unwrap();
        for values in [spread.mutual_information, spread.diversity_kl, spread.pairwise_kl] {
            assert!(values.iter().all(|value| *value == 0.0), "{members} members, {classes} classes: {values:?}");
        }
    }
}

fn seven_classes() -> Scores {
    let mut logits = vec![];
    for (k, i) in (0..3).flat_map(|k| (0..40).map(move |i| (f64::from(k), f64::from(i)))) {
        let logit = |c: f64| 3.0 * (1.7 * i + 0.9 * c * c).sin() + 2.0 * (2.1 * k + i * c).sin();
        logits.extend((0..7).map(|c| logit(f64::from(c)) as f32));
    }
    let labels: Vec<u32> = (0..40).map(|i: u32| i.pow(3) * 3 / 5 % 7).collect();
    scores(3, &labels, logits)
}

#[rustfmt::skip]
const SEVEN: [(&str, f64); 40] = [
    ("accuracy_lm", 0.15), ("accuracy_pm", 0.225),
    ("top5_lm", 0.825), ("top5_pm", 0.75),
    ("nll_lm", 2.9828661650647934), ("nll_pm", 2.863369347410168),
    ("brier_lm", 0.9876333839091489), ("brier_pm", 0.9761492839927094),
    ("ece_lm", 0.338520348072052), ("ece_pm", 0.1889723241329193),
    ("mce_lm", 0.8044154047966003), ("mce_pm", 0.6483335494995117),
    ("mi_correct_lm", 0.3064957400733441), ("mi_correct_pm", 0.2966654211170105),
    ("mi_wrong_lm", 0.358455824083153), ("mi_wrong_pm", 0.36633818287787656),
    ("auroc_mi_error_lm", 0.6029411764705882), ("auroc_mi_error_pm", 0.6487455197132617),
    ("auroc_entropy_error_lm", 0.5784313725490196), ("auroc_entropy_error_pm", 0.6415770609318996),
    ("predictive_entropy", 1.3169187021519793), ("expected_entropy", 0.9662568906702976),
    ("mi", 0.3506618114816817), ("diversity_kl", 0.5626308140578816),
    ("pairwise_kl", 1.3699389383093452), ("disagreement", 0.775),
    ("ace_lm", 0.34184615803139295), ("ace_pm", 0.2452703187607582),
    ("rmsce_lm", 0.3749456794967366), ("rmsce_pm", 0.22743289033377098),
    ("aurc_lm", 0.7477881573490908), ("aurc_pm", 0.7278201295859075),
    ("augrc_lm", 0.4086538461538461), ("augrc_pm", 0.3679487179487179),
    ("accuracy_at_80_coverage_lm", 0.15625), ("accuracy_at_80_coverage_pm", 0.28125),
    ("accuracy_at_90_coverage_lm", 0.13888888888888884), ("accuracy_at_90_coverage_pm", 0.25),
    ("coverage_at_5_risk_lm", 0.0), ("coverage_at_5_risk_pm", 0.0),
];

// k, i, c = np.ogrid[:3, :40, :7]; z = 3*np.sin(1.7*i + 0.9*c*c) + 2*np.sin(2.1*k + i*c)
// y = np.arange(40)**3 * 3 // 5 % 7; the rest as above, with
// sklearn top_k_accuracy_score(y, p, k=5, labels=range(7)) and torchmetrics' ECE and MCE (f32).
#[test]
fn seven_classes_match_scikit_learn_and_torchmetrics() {
    assert_values(&seven_classes(), 1e-6, &SEVEN);
}

// Worked by hand: p = (.8, .2), (.3, .7) for member 0 and (.6, .4), (.9, .1) for member 1; y = 0, 1. The mean
// probabilities are (.7, .3) and (.6, .4). The logit means have the odds √(4 · 1.5) = √6 and √(3/7 · 9) = √(27/7).
#[test]
fn two_samples_by_hand() {
    let logits = [0.8, 0.2, 0.3, 0.7, 0.6, 0.4, 0.9, 0.1].map(|p: f64| p.ln() as f32);
    let scores = scores(2, &[0, 1], logits.to_vec());
    let (a, b) = (6f64.sqrt() / (1.0 + 6f64.sqrt()), 1.0 / (1.0 + (7f64 / 27.0).sqrt()));
    let h = |p: f64| -p * p.ln() - (1.0 - p) * (1.0 - p).ln();
    let kl = |p: f64, q: f64| p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln();
    let mi = [h(0.7) - (h(0.8) + h(0.6)) / 2.0, h(0.6) - (h(0.3) + h(0.9)) / 2.0];
    let expected = [
        ("accuracy_pm", 0.5),
        ("accuracy_lm", 0.5),
        ("nll_pm", -(0.7f64.ln() + 0.4f64.ln()) / 2.0),
        ("nll_lm", -(a.ln() + (1.0 - b).ln()) / 2.0),
        ("brier_pm", (2.0 * 0.09 + 2.0 * 0.36) / 2.0),
        ("brier_lm", (1.0 - a).powi(2) + b.powi(2)),
        ("ece_pm", (0.3 + 0.6) / 2.0),
        ("mce_pm", 0.6),
        ("ece_lm", (1.0 - a + b) / 2.0),
        ("mce_lm", b),
        ("predictive_entropy", (h(0.7) + h(0.6)) / 2.0),
        ("expected_entropy", (h(0.8) + h(0.6) + h(0.3) + h(0.9)) / 4.0),
        ("mi", (mi[0] + mi[1]) / 2.0),
        ("mi_correct_pm", mi[0]),
        ("mi_wrong_pm", mi[1]),
        ("auroc_mi_error_pm", 1.0),
        ("auroc_entropy_error_pm", 1.0),
        ("diversity_kl", (kl(0.7, 0.8) + kl(0.7, 0.6) + kl(0.6, 0.3) + kl(0.6, 0.9)) / 4.0),
        ("pairwise_kl", (kl(0.8, 0.6) + kl(0.6, 0.8) + kl(0.3, 0.9) + kl(0.9, 0.3)) / 4.0),
        ("disagreement", 0.5),
    ];
    assert_values(&scores, 1e-6, &expected);
}

// Both confidences lie in the last bin (14/15, 1], and |0.5 - 0.975| = 0.475. An extra bin for exactly 1 would give
// 0.525.
#[test]
fn full_confidence_shares_the_last_bin() {
    let scores = scores(1, &[1, 0], vec![1000.0, 0.0, 19f32.ln(), 0.0]);
    assert_values(&scores, 1e-7, &[("ece_pm", 0.475), ("ece_lm", 0.475), ("mce_pm", 0.475)]);
}

#[test]
fn extreme_logits_have_exact_nll() {
    let scores = scores(2, &[1], vec![1e4, -1e4, 1e4, -1e4]);
    assert_eq!((value(&scores, "nll_pm"), value(&scores, "nll_lm")), (Some(2e4), Some(2e4)));
    assert_eq!(value(&scores, "mi"), Some(0.0));
    assert!(evaluate(&scores).iter().all(|(_, value)| value.is_none_or(f64::is_finite)));
}

// The members are certain of opposite classes, so p̄ = (1/2, 1/2), MI = log 2, and each KL of the pair is the logit
// gap.
#[test]
fn opposite_extreme_members_disagree_fully() {
    let scores = scores(2, &[1], vec![1e4, -1e4, -1e4, 1e4]);
    let log2 = std::f64::consts::LN_2;
    let expected = [("nll_pm", log2), ("nll_lm", log2), ("mi", log2), ("pairwise_kl", 2e4), ("disagreement", 1.0)];
    assert_values(&scores, 1e-9, &expected);
}

#[test]
fn a_single_member_has_no_spread() {
    let scores = scores(1, &[0, 0], vec![1.0, 0.0, 0.0, 1.0]);
    let empty =
        ["mi", "mi_correct_lm", "mi_wrong_pm", "diversity_kl", "pairwise_kl", "disagreement", "auroc_mi_error_lm"];
    assert!(empty.iter().all(|column| value(&scores, column).is_none()));
    assert_eq!(value(&scores, "accuracy_lm"), Some(0.5));
    for metric in METRICS.iter().filter(|metric| metric.scope == Scope::PerAverage) {
        let [lm, pm] = Average::ALL.map(|average| (metric.eval)(&scores, average));
        assert!(
            lm.is_some() == pm.is_some() && (lm.unwrap_or(0.0) - pm.unwrap_or(0.0)).abs() < 1e-15,
            "{}",
            metric.key
        );
    }
}

#[test]
fn values_stay_in_their_ranges() {
    for scale in [0.01f32, 1.0, 30.0] {
        let logits = THREE_MEMBERS.map(|logit| logit * scale);
        let scores = scores(3, &[0, 1, 2, 1, 0, 2], logits.to_vec());
        let spread = scores.uncertainty.spread.as_ref().unwrap();
        for values in [&spread.mutual_information, &spread.diversity_kl, &spread.pairwise_kl] {
            assert!(values.iter().all(|value| *value >= 0.0));
        }
        for metric in METRICS.iter().filter(|metric| metric.unit == Unit::Fraction) {
            let values = Average::ALL.map(|average| (metric.eval)(&scores, average));
            assert!(values.iter().flatten().all(|value| (0.0..=1.0).contains(value)), "{}", metric.key);
        }
    }
}

#[test]
fn order_of_members_changes_nothing() {
    let labels = [0, 1, 2, 1, 0, 2];
    let mut turned = THREE_MEMBERS.to_vec();
    turned.rotate_left(18);
    let [one, other] = [THREE_MEMBERS.to_vec(), turned].map(|logits| evaluate(&scores(3, &labels, logits)));
    for ((column, a), (_, b)) in one.iter().zip(&other) {
        assert!(a.is_some() == b.is_some() && (a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs() < 1e-12, "{column}");
    }
}

#[test]
fn columns_are_distinct_and_lead_back_to_their_metric() {
    let columns: Vec<_> = evaluate(&seven_classes()).into_iter().map(|(column, _)| column).collect();
    for (i, column) in columns.iter().enumerate() {
        assert!(!columns[..i].contains(column), "{column} twice");
        let metric = METRICS.iter().find(|metric| metric.columns().iter().any(|(name, _)| name == column)).unwrap();
        assert!(column.starts_with(metric.key));
        assert_eq!(of_column(column), Some(metric.column()));
    }
    assert_eq!(columns[..2], ["accuracy_lm", "accuracy_pm"]);
    assert!(columns.contains(&"predictive_entropy".to_string()) && of_column("seed").is_none());
}

#[test]
fn unlabelled_predictions_have_no_scores() {
    let shape = Shape { members: 1, samples: 1, classes: 2 };
    let unlabelled = Predictions::unlabelled(shape, vec![0.0, 1.0]).unwrap();
    let message = Scores::compute(&unlabelled).unwrap_err().to_string();
    assert!(message.contains("have no labels"), "{message}");
}

#[test]
fn label_free_parts_are_the_same_with_and_without_labels() {
    let shape = Shape { members: 3, samples: 6, classes: 3 };
    let unlabelled = Predictions::unlabelled(shape, THREE_MEMBERS.to_vec()).unwrap();
    let alone = Uncertainty::compute(&unlabelled).unwrap();
    assert_eq!(alone, scores(3, &[0, 1, 2, 1, 0, 2], THREE_MEMBERS.to_vec()).uncertainty);
}

#[test]
fn only_metrics_of_two_classes_have_no_value_for_ten() {
    let without = |classes: usize| -> Vec<&str> {
        METRICS.iter().filter(|metric| !metric.is_defined_for(classes)).map(|metric| metric.key).collect()
    };
    assert_eq!(without(2), ["top5"]);
    assert_eq!((without(10), without(1000)), (vec!["auroc", "f1"], vec!["auroc", "f1"]));
}
