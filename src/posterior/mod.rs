//! The result of training: a distribution over the rows of theta, as one type. A method returns it; the snapshot that
//! best-epoch selection keeps, the file of the run and the ways to predict follow from it.

pub mod curvature;
pub mod description;
mod draws;
mod file;
mod masks;
mod predictive;

use tch::Tensor;

use crate::base::tensor::snapshot;

pub use curvature::{Approximation, Fitted};
pub use description::Description;
pub use draws::Draws;
pub use file::Stored;
pub use masks::{Masks, Place};
pub use predictive::{Output, Predictive};

/// A mixture of n components, each around a row of theta `[n, P]`, f32. They have equal weights, but for those of a bank.
pub enum Posterior {
    /// Particles that are points.
    Points { theta: Tensor },
    /// Gaussians with independent columns: means `[n, P]` and standard deviations `[n, P]`.
    Gaussians { mean: Tensor, std: Tensor },
    /// Gaussians from the curvature around the modes `[n, P]`.
    Laplace { mode: Tensor, fitted: Fitted },
    /// Gaussians with covariance (diag(std²) + Dᵀ D / (K − 1)) / 2 (SWAG; Maddox et al. 2019, arXiv 1902.02476): means
    /// `[n, P]`, standard deviations `[n, P]`, deviations D `[n, K, P]`.
    LowRankGaussians { mean: Tensor, std: Tensor, deviations: Tensor },
    /// Gaussians with independent blocks of d columns: means `[n, P]`, standard deviations `[n, P]`, and lower triangular factors
    /// L `[n, C, d, d]` of the covariances L Lᵀ of the C blocks from column `start` on. All other columns are independent.
    BlockGaussians { mean: Tensor, std: Tensor, factors: Tensor, start: i64 },
    /// Gaussians whose columns share random numbers: means `[n, P]`, standard deviations `[n, P]` with a sign, and the rows that
    /// have one number each for all their columns; columns of no row have none of their own.
    TiedGaussians { mean: Tensor, std: Tensor, rows: Vec<Rows> },
    /// Points `[n, P]` whose members drop inputs of their layers (Monte Carlo dropout).
    Dropout { theta: Tensor, masks: Masks },
    /// Draws `[m, P]` kept while sampling, such as those of stochastic-gradient Langevin dynamics, with a weight for each
    /// (at least 0, with the sum 1); `None` if all weigh the same.
    Bank { draws: Tensor, weights: Option<Vec<f64>> },
}

/// A matrix `[count, width]` in the columns of theta from `start` on, by rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub start: i64,
    pub count: i64,
    pub width: i64,
}

impl Rows {
    /// Returns the matrices of rows of theta, `[k, count, width]`, which share their memory.
    pub fn of(&self, theta: &Tensor) -> Tensor {
        theta.narrow(1, self.start, self.count * self.width).unflatten(1, [self.count, self.width].as_slice())
    }
}

impl Posterior {
    /// Returns the rows that represent the components, `[n, P]`: points, draws, modes or means.
    pub fn theta(&self) -> &Tensor {
        match self {
            Posterior::Points { theta } | Posterior::Dropout { theta, .. } => theta,
            Posterior::Laplace { mode, .. } => mode,
            Posterior::Gaussians { mean, .. }
            | Posterior::LowRankGaussians { mean, .. }
            | Posterior::BlockGaussians { mean, .. }
            | Posterior::TiedGaussians { mean, .. } => mean,
            Posterior::Bank { draws, .. } => draws,
        }
    }

    /// Returns the weights of the components, which sum to 1; `None` if all weigh the same.
    pub fn weights(&self) -> Option<&[f64]> {
        match self {
            Posterior::Bank { weights, .. } => weights.as_deref(),
            _ => None,
        }
    }

    /// Returns the number of components n.
    pub fn particles(&self) -> i64 {
        self.theta().size()[0]
    }

    /// Returns whether the components have a spread from which members can be drawn.
    pub fn is_random(&self) -> bool {
        !matches!(self, Posterior::Points { .. } | Posterior::Bank { .. })
    }

    /// Returns the predictives for the evaluation after training, where `own` is that of the method. For Gaussians this
    /// includes their means, and for dropout the particles without it.
    pub fn predictives(&self, own: Predictive) -> Vec<Predictive> {
        if self.is_random() && own != Predictive::Particles { vec![own, Predictive::Mean] } else { vec![own] }
    }

    /// Returns the same posterior with rows that later training steps do not change.
    pub fn snapshot(self) -> Posterior {
        match self {
            Posterior::Points { theta } => Posterior::Points { theta: snapshot(&theta) },
            Posterior::Gaussians { mean, std } => Posterior::Gaussians { mean: snapshot(&mean), std },
            Posterior::Laplace { mode, fitted } => Posterior::Laplace { mode: snapshot(&mode), fitted },
            Posterior::LowRankGaussians { mean, std, deviations } => {
                Posterior::LowRankGaussians { mean: snapshot(&mean), std, deviations }
            }
            Posterior::BlockGaussians { mean, std, factors, start } => {
                Posterior::BlockGaussians { mean: snapshot(&mean), std, factors, start }
            }
            Posterior::TiedGaussians { mean, std, rows } => {
                Posterior::TiedGaussians { mean: snapshot(&mean), std, rows }
            }
            Posterior::Dropout { theta, masks } => Posterior::Dropout { theta: snapshot(&theta), masks },
            bank @ Posterior::Bank { .. } => bank,
        }
    }
}
