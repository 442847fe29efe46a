//! The registry of metrics. A new metric is one file and its lines here.

use super::metric::Metric;
use super::{
    accuracy, auroc, balanced_accuracy, brier, calibration, classwise, debiased, diversity, entropy, f1, matthews, nll,
    selective, smooth,
};

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
    &debiased::DEBIASED,
    &classwise::CLASSWISE,
    &smooth::SMOOTH,
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
    &matthews::MATTHEWS,
    &balanced_accuracy::BALANCED_ACCURACY,
    &auroc::AUROC,
    &f1::F1,
    &f1::F1_MACRO,
    &f1::F1_MACRO_SHOWN,
];
