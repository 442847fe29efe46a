//! Every metric against the packages that users know.

use super::{NUMBER_METRICS, evaluate, of_all};
use crate::predictions::Numbers;

/// scripts/make_regression_goldens.py: torch-uncertainty 0.13.0, torchmetrics 1.9.0, scoringrules 0.10.0, uncertainty-toolbox 0.1.1,
/// scipy 1.17.1. QCE is in f32 there.
const GOLDENS: &str = include_str!("../../../tests/fixtures/regression.json");

fn list(value: &serde_json::Value) -> Vec<f64> {
    value.as_array().unwrap().iter().flat_map(|one| one.as_f64().map_or_else(|| list(one), |one| vec![one])).collect()
}

#[test]
fn metrics_are_those_of_the_packages() {
    let cases: serde_json::Value = serde_json::from_str(GOLDENS).unwrap();
    let mut compared = std::collections::BTreeSet::new();
    for (name, case) in cases.as_object().unwrap() {
        let predicted = Numbers::new(list(&case["means"]), list(&case["variances"]), list(&case["numbers"])).unwrap();
        let found = evaluate(&of_all(&predicted.with_weights(list(&case["weights"])).unwrap()));
        for (key, expected) in case["metrics"].as_object().unwrap() {
            let value = found.iter().find(|(column, _)| column == key).unwrap().1.unwrap();
            let tolerance = if key == "qce" { 1e-6 } else { 1e-10 };
            let apart = (value - expected.as_f64().unwrap()).abs();
            assert!(apart < tolerance, "{name} {key}: {value} instead of {expected}");
            compared.insert(key.as_str());
        }
    }
    assert_eq!(compared.len(), NUMBER_METRICS.len(), "{compared:?}");
}
