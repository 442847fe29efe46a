//! The keys that methods which train or fit Gaussians read alike, and the divergence from a prior that they share.

use tch::{Kind, Tensor};

use super::MAX_PARTICLES;
use crate::schema::{Reader, limits};

/// Reads the number of Gaussians in a mixture, `particles`.
pub(super) fn particles(reader: &Reader) -> i64 {
    reader.integer("particles", 1..=MAX_PARTICLES).about("Number of Gaussians in the mixture.").or(1)
}

/// Reads the effective sample size, `ess`.
pub(super) fn ess(reader: &Reader) -> f64 {
    reader
        .float("ess", limits::above(0.0))
        .about("Effective sample size: the number of training images.")
        .required_because("the effective sample size: the number of training images")
}

/// Reads the number of draws that predict, `samples`, of Gaussians over all columns.
pub(super) fn samples(reader: &Reader) -> usize {
    reader.count("samples", 1..=100_000).about("Draws per particle that predict after training.").or(8)
}

/// Reads the number of noisy weights in a step, `mc_samples`.
pub(super) fn mc_samples(reader: &Reader) -> i64 {
    reader.integer("mc_samples", 1..=10_000).about("Noisy weights per training step.").or(1)
}

/// Reads the number of particles with a Gaussian around each, `particles`.
pub(super) fn fitted(reader: &Reader) -> i64 {
    reader.integer("particles", 1..=MAX_PARTICLES).about("Number of particles, each with a Gaussian around it.").or(1)
}

/// Reads the run whose particles are taken, `from`.
pub(super) fn from(reader: &Reader) -> Option<String> {
    reader
        .string("from")
        .about("Finished run whose particles are taken: its folder, the start of its id, or settings.")
        .optional()
}

/// Returns KL(N(m, s²) ‖ N(0, prior²)) of each row, `[n]` in f64, for means and standard deviations `[n, k]`.
pub(super) fn divergence(mean: &Tensor, std: &Tensor, prior: f64) -> Tensor {
    let of = |tensor: &Tensor| tensor.to_kind(Kind::Double) / prior;
    let (mean, ratio) = (of(mean), of(std));
    let each = (mean.square() + ratio.square() - 1.0) * 0.5 - ratio.log();
    each.sum_dim_intlist([1i64].as_slice(), false, Kind::Double)
}
