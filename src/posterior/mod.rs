//! The result of training: a distribution over the rows of theta, as one type. A method returns it; the snapshot that
//! best-epoch selection keeps, the file of the run and the ways to predict follow from it.

pub mod curvature;
pub mod description;
mod draws;
mod file;

use tch::Tensor;

use crate::base::tensor::snapshot;
use crate::schema::words;

pub use curvature::{Approximation, Fitted};
pub use description::Description;
pub use draws::Draws;
pub use draws::{Masks, Place};
pub use file::Stored;

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
    /// Points `[n, P]` whose members drop inputs of their layers (Monte Carlo dropout).
    Dropout { theta: Tensor, masks: Masks },
    /// Draws `[m, P]` kept while sampling, such as those of stochastic-gradient Langevin dynamics, with a weight for each
    /// (at least 0, with the sum 1); `None` if all weigh the same.
    Bank { draws: Tensor, weights: Option<Vec<f64>> },
}

impl Posterior {
    /// Returns the rows that represent the components, `[n, P]`: points, draws, modes or means.
    pub fn theta(&self) -> &Tensor {
        match self {
            Posterior::Points { theta } | Posterior::Dropout { theta, .. } => theta,
            Posterior::Laplace { mode, .. } => mode,
            Posterior::Gaussians { mean, .. }
            | Posterior::LowRankGaussians { mean, .. }
            | Posterior::BlockGaussians { mean, .. } => mean,
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
            Posterior::Dropout { theta, masks } => Posterior::Dropout { theta: snapshot(&theta), masks },
            bank @ Posterior::Bank { .. } => bank,
        }
    }
}

words! {
    /// The way in which Gaussian logits or weights become predictions.
    pub enum Output {
        /// Draws of linearised logits, one member each.
        Mc = "mc",
        /// The probit approximation softmax(f_c / √(1 + π V_cc / 8)): one member per particle, with its
        /// log-probabilities as logits.
        Probit = "probit",
        /// The Laplace bridge to a Dirichlet distribution (Hobbhahn et al. 2022, arXiv 2003.01227), with members as for
        /// `probit`.
        Bridge = "bridge",
        /// Draws of weights, one member each, through the network itself.
        Sampled = "sampled",
    }
}

/// The members that represent the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictive {
    /// The particles themselves: points, draws of a bank, or means of Gaussians.
    Particles,
    /// The means of Gaussians (IVON@mean), or particles without dropout, named separately from draws.
    Mean,
    /// This many draws of weights from each Gaussian, or masks of each particle.
    Draws(usize),
    /// The Gaussian logits of a Laplace approximation, with this many draws per particle if draws are the members.
    Linearised(Output, usize),
}

impl Predictive {
    /// Returns the predictive for the output of a Laplace approximation.
    pub fn laplace(output: Output, samples: usize) -> Predictive {
        match output {
            Output::Sampled => Predictive::Draws(samples),
            Output::Mc | Output::Probit | Output::Bridge => Predictive::Linearised(output, samples),
        }
    }

    /// Returns the cell in results. It is empty for `own`, the predictive of the method.
    pub fn name(self, own: Predictive) -> String {
        match self {
            Predictive::Particles => String::new(),
            asked if asked == own => String::new(),
            Predictive::Mean => "mean".to_string(),
            Predictive::Draws(draws) => format!("draws-{draws}"),
            Predictive::Linearised(Output::Mc, draws) => format!("mc-{draws}"),
            Predictive::Linearised(output, _) => output.to_string(),
        }
    }
}
