//! Points of weight space between particles: ΔW = Σ_j c_j ΔW_j. Particles are averaged here because the mean of the
//! products B A is not the product of the means.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::{Combined, Subspace};
use crate::schema::words;

words! {
    /// The quantity that is averaged.
    pub enum Space {
        /// The updates ΔW. The average is exact and has rank n·r for low-rank particles.
        Weights = "weights",
        /// The columns of theta, factor by factor. This keeps the rank but does not average the models.
        Factors = "factors",
    }
}

/// Returns the mean of all particles as one particle, with the weights of the particles (with the sum 1; `None` if all weigh
/// the same). A mean in factors stays in the same subspace.
pub fn mean(subspace: &dyn Subspace, theta: &Tensor, weights: Option<&[f64]>, space: Space) -> Result<Combined> {
    let particles = theta.size()[0];
    let coefficients = match weights {
        None => Tensor::full([1, particles], 1.0 / particles as f64, (Kind::Float, theta.device())),
        Some(weights) => Tensor::from_slice(weights).view([1, -1]).to_kind(Kind::Float).to_device(theta.device()),
    };
    match space {
        Space::Weights => subspace.combine(theta, &coefficients),
        Space::Factors => Ok(Combined { subspace: subspace.again(), theta: coefficients.matmul(theta) }),
    }
}

/// Returns the points Σ_j c_j θ_j, `[k, P]`, of particles `theta: [n, P]` whose updates are relative to `origin: [P]`.
///
/// # Errors
/// Fails if the coefficients are not `[k, n]`.
pub(super) fn around(origin: &Tensor, theta: &Tensor, coefficients: &Tensor) -> Result<Tensor> {
    check(theta, coefficients)?;
    let origin = origin.to_device(theta.device());
    Ok(coefficients.matmul(&(theta - &origin)) + origin)
}

/// Checks that the coefficients are `[k, n]` for `theta: [n, P]`.
pub(super) fn check(theta: &Tensor, coefficients: &Tensor) -> Result<()> {
    let (theta, coefficients) = (theta.size(), coefficients.size());
    let fits = coefficients.len() == 2 && coefficients[1] == theta[0];
    ensure!(fits, "coefficients {coefficients:?} for particles {theta:?}: they must be [points, particles]");
    Ok(())
}
