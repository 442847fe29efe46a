//! Points of weight space between particles: ΔW = Σ_j c_j ΔW_j. Averages of particles are taken here, since the mean of
//! products B A is not the product of means.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::{Combined, Subspace};
use crate::schema::words;

words! {
    /// What is averaged.
    pub enum Space {
        /// The updates ΔW: exact, of rank n·r for low-rank particles.
        Weights = "weights",
        /// The columns of theta, factor by factor: keeps the rank, but is no average of the models.
        Factors = "factors",
    }
}

/// The mean of all particles, as one: in factors it stays in the subspace it has.
pub fn mean(subspace: &dyn Subspace, theta: &Tensor, space: Space) -> Result<Combined> {
    let particles = theta.size()[0];
    let coefficients = Tensor::full([1, particles], 1.0 / particles as f64, (Kind::Float, theta.device()));
    match space {
        Space::Weights => subspace.combine(theta, &coefficients),
        Space::Factors => Ok(Combined { subspace: subspace.again(), theta: coefficients.matmul(theta) }),
    }
}

/// Coefficients must be `[k, n]` for `theta: [n, P]`.
pub(super) fn check(theta: &Tensor, coefficients: &Tensor) -> Result<()> {
    let (theta, coefficients) = (theta.size(), coefficients.size());
    let fits = coefficients.len() == 2 && coefficients[1] == theta[0];
    ensure!(fits, "coefficients {coefficients:?} for particles {theta:?}: they must be [points, particles]");
    Ok(())
}
