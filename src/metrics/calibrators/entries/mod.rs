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

/// Returns the keys of all calibrators in one line.
pub fn keys() -> String {
    CALIBRATORS.iter().map(|calibrator| calibrator.key).collect::<Vec<_>>().join(", ")
}

/// Finds a calibrator by its key.
///
/// # Errors
/// Fails for an unknown one, and names all.
pub fn find(key: &str) -> Result<&'static Calibrator, String> {
    let found = CALIBRATORS.iter().copied().find(|calibrator| calibrator.key == key);
    found.ok_or_else(|| format!("unknown calibrator `{key}`; known: {}", keys()))
}
