//! Calibrators: maps of averaged predictions to probabilities, fitted on held-out images. Each has one file below `entries` and is
//! registered in [`CALIBRATORS`]. `--calibrate=KEY,…` fits them; a row has the columns `<metric>_<suffix>_<average>` of each, so that it
//! says which calibrator a number comes from.

mod columns;
pub mod entries;
mod fitted;
mod linear;

pub use columns::{Calibration, is_column, metrics, of_column, word};
pub use entries::{CALIBRATORS, DEFAULT};
pub use fitted::{Averaged, Calibrated, Calibrator, Fit, Map, Size};

#[cfg(test)]
mod tests;
