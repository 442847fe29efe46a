//! The keys that several methods read alike.

use super::MAX_PARTICLES;
use crate::schema::{Bounds, Reader};

/// Reads the number of Gaussians in a mixture, `particles`.
pub(super) fn gaussians(reader: &Reader) -> i64 {
    reader.count("particles", 1..=MAX_PARTICLES).about("Number of Gaussians in the mixture.").or(1) as i64
}

/// Reads the effective sample size, `ess`.
pub(super) fn ess(reader: &Reader) -> f64 {
    reader
        .float("ess", Bounds::above(0.0))
        .about("Effective sample size: the number of training images.")
        .required_because("the effective sample size: the number of training images")
}
