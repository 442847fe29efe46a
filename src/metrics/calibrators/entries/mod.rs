//! The registry of calibrators. A new one is one file, its `mod` line and its line here.

mod dirichlet;
mod histogram;
mod isotonic;
mod matrix;
mod temperature;
mod vector;

use super::fitted::Calibrator;

/// The calibrator that is fitted where none is named.
pub static DEFAULT: &Calibrator = &temperature::ENTRY;

pub static CALIBRATORS: &[&Calibrator] =
    &[&temperature::ENTRY, &vector::ENTRY, &matrix::ENTRY, &dirichlet::ENTRY, &isotonic::ENTRY, &histogram::ENTRY];
