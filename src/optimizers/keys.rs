//! The keys that several optimizers read alike, and methods that step by themselves.

use crate::schema::{Reader, limits};

/// Reads the decay of the gradient's running mean, `beta1`.
pub fn beta1(reader: &Reader) -> f64 {
    reader.float("beta1", limits::from_below(0.0, 1.0)).about("Decay of the gradient's running mean.").or(0.9)
}
