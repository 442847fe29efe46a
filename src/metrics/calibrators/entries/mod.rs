//! The registry of calibrators. A new one is one file, its `mod` line and its line here.

mod dirichlet;
mod histogram;
mod isotonic;
mod matrix;
mod temperature;
mod vector;

use super::fitted::Calibrator;

pub static CALIBRATORS: &[&Calibrator] =
    &[&temperature::ENTRY, &vector::ENTRY, &matrix::ENTRY, &dirichlet::ENTRY, &isotonic::ENTRY, &histogram::ENTRY];

/// Divides values by their sum; where it is 0, all become equal, as scikit-learn has it.
fn normalised(values: Vec<f64>) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    let count = values.len() as f64;
    values.into_iter().map(|value| if sum > 0.0 { value / sum } else { 1.0 / count }).collect()
}
