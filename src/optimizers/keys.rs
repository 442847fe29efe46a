//! The keys that several optimizers read alike, and methods that step by themselves.

use crate::schema::{Bounds, Reader};

/// Reads `lr`: one learning rate, or one per particle.
pub fn rates(reader: &Reader) -> Vec<f64> {
    reader.floats_or_one("lr", Bounds::above(0.0)).about("Learning rate, or one per particle.").required()
}

/// Reads `weight_decay`, which is `usual` where nothing is said.
pub fn weight_decay(reader: &Reader, usual: f64) -> f64 {
    reader.float("weight_decay", Bounds::at_least(0.0)).about("Weight decay, apart from the gradient.").or(usual)
}

/// Reads the decay of the gradient's running mean, `beta1`.
pub fn beta1(reader: &Reader) -> f64 {
    reader.float("beta1", Bounds::from_below(0.0, 1.0)).about("Decay of the gradient's running mean.").or(0.9)
}
