//! The keys that several methods read alike.

use super::MAX_PARTICLES;
use crate::schema::{Reader, limits};

/// Reads the number of Gaussians in a mixture, `particles`.
pub(super) fn gaussians(reader: &Reader) -> i64 {
    reader.integer("particles", 1..=MAX_PARTICLES).about("Number of Gaussians in the mixture.").or(1)
}

/// Reads the effective sample size, `ess`.
pub(super) fn ess(reader: &Reader) -> f64 {
    reader
        .float("ess", limits::above(0.0))
        .about("Effective sample size: the number of training images.")
        .required_because("the effective sample size: the number of training images")
}
