//! The registry of metrics, and their values. A new metric is one file and its lines here.

use super::metric::Metric;
use super::{Average, Scores};
use super::{accuracy, agreement, auroc, brier, calibration, diversity, entropy, nll, selective};

/// All metrics in the order of the columns.
pub static METRICS: &[&Metric] = &[
    &accuracy::ACCURACY,
    &accuracy::TOP5,
    &nll::NLL,
    &brier::BRIER,
    &calibration::ECE,
    &calibration::MCE,
    &calibration::ACE,
    &calibration::RMSCE,
    &calibration::DEBIASED,
    &calibration::CLASSWISE,
    &calibration::SMOOTH,
    &entropy::PREDICTIVE,
    &entropy::EXPECTED,
    &entropy::MI,
    &entropy::MI_CORRECT,
    &entropy::MI_WRONG,
    &entropy::ENTROPY_CORRECT,
    &entropy::ENTROPY_WRONG,
    &diversity::DIVERSITY_KL,
    &diversity::PAIRWISE_KL,
    &diversity::DISAGREEMENT,
    &auroc::MI_ERROR,
    &auroc::ENTROPY_ERROR,
    &selective::AURC,
    &selective::AUGRC,
    &selective::ACCURACY_AT_80,
    &selective::ACCURACY_AT_90,
    &selective::COVERAGE_AT_5,
    &agreement::MATTHEWS,
    &agreement::BALANCED_ACCURACY,
    &auroc::AUROC,
    &agreement::F1,
    &agreement::F1_MACRO,
    &agreement::F1_MACRO_SHOWN,
];

/// Returns all columns and their values in registry order. Undefined values are `None`.
pub fn evaluate(scores: &Scores) -> Vec<(String, Option<f64>)> {
    let columns = METRICS.iter().flat_map(|metric| {
        let values = metric.columns().into_iter();
        values.map(|(column, average)| (column, (metric.eval)(scores, average)))
    });
    columns.collect()
}

/// Returns the value of the metric with this key. `None` if the key is unknown or the value is undefined.
pub fn value(scores: &Scores, key: &str, average: Average) -> Option<f64> {
    METRICS.iter().find(|metric| metric.key == key).and_then(|metric| (metric.eval)(scores, average))
}
