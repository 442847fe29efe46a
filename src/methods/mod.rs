//! Inference methods: how the rows of `theta` `[n, P]` move. One file a method, registered in [`METHODS`].
//!
//! A method sees the matrix, an [`Objective`] and distances between particles; never a model.

mod entries;
mod independent;
pub mod kernel;
pub mod laplace;
pub mod noise;

use anyhow::{Result, bail};
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::optimizers::Optimizer;
use crate::schema::Reader;
use crate::subspace::geometry::Geometry;

pub use entries::{METHODS, ivon, svgd};

/// Loss and gradient of every particle.
pub struct Evaluation {
    /// Mean minibatch loss of each particle, `[n]`.
    pub losses: Tensor,
    /// Gradient of each particle's own loss, `[n, P]`.
    pub gradients: Tensor,
}

/// Gradients mixed in weight space, with the particles' own.
pub struct Mixed {
    pub own: Evaluation,
    /// `[n, P]`.
    pub gradients: Tensor,
}

/// What a method may ask of the data, as often as it likes within a step.
pub trait Objective {
    /// Losses and gradients at `theta: [n, P]` on the step's batch.
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation>;

    /// With G_j the gradient of L_j by the weights of a block, Σ_j c_ij G_j carried into the columns of particle i, for one
    /// matrix c a block: `matrices: [L, n, n]`, constants.
    ///
    /// # Errors
    /// Matrices of another shape; an objective without weights.
    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let _ = (theta, matrices);
        bail!("this objective does not know the weights behind theta: it cannot mix gradients there")
    }

    /// Parts that the batch is cut into (`train.accumulate`).
    fn parts(&self) -> usize {
        1
    }

    /// The part's share of the batch.
    fn share(&self, part: usize) -> f64 {
        let _ = part;
        1.0
    }

    /// Losses and gradients on one part, times its share: over all parts they add up to [`evaluate`](Self::evaluate).
    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        let _ = part;
        self.evaluate(theta)
    }
}

/// What came out of a step; tensors stay on the device.
pub struct Step {
    /// `[n]`.
    pub losses: Tensor,
    /// One number for each of [`Method::diagnostics`], `[k]`.
    pub diagnostics: Option<Tensor>,
}

/// How particles move.
pub trait Method {
    /// One update of `theta: [n, P]`; `factor` is the schedule's share of the learning rate.
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step>;

    /// Names of the numbers that every step reports.
    fn diagnostics(&self) -> &'static [&'static str] {
        &[]
    }

    /// Standard deviations of the posterior around `theta`, `[n, P]`, where rows are means of Gaussians.
    fn posterior_std(&self) -> Option<Tensor> {
        None
    }

    /// What the user should know after training, a line each.
    ///
    /// # Errors
    /// Those of reading from the device.
    fn remarks(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Everything that a resumed run needs besides `theta`.
    fn save(&self, state: &mut State);

    fn load(&mut self, state: &State) -> Result<()>;
}

/// What a method is built from.
pub struct Parts {
    /// The start, `[n, P]`.
    pub theta: Tensor,
    pub seed: u64,
    pub optimizer: Box<dyn Optimizer>,
    pub geometry: Geometry,
    /// Largest L2 norm of one particle's gradient.
    pub clip_norm: Option<f64>,
}

impl Parts {
    /// Hands a direction to the optimizer, clipped a particle at a time.
    fn apply(&mut self, theta: &mut Tensor, direction: &Tensor, factor: f64) {
        match self.clip_norm {
            Some(norm) => self.optimizer.step(theta, &crate::optimizers::clip_rows(direction, norm), factor),
            None => self.optimizer.step(theta, direction, factor),
        }
    }
}

/// Facts that decide whether a method can work, known before any weight is read.
pub struct Circumstances {
    /// The subspace's key.
    pub subspace: &'static str,
}

/// The settings of a method, as read from `[method.*]`.
pub trait MethodSpec {
    /// n.
    fn particles(&self) -> i64;

    fn build(&self, parts: Parts) -> Box<dyn Method>;

    /// Whether the method moves theta by its own rule, with `[optimizer.none]` beside it.
    fn own_optimizer(&self) -> bool {
        false
    }

    /// Matrices `[n, P]` that the method keeps from step to step, besides theta and those of the optimizer.
    fn kept_matrices(&self) -> u64 {
        0
    }

    /// Matrices `[n, P]` that a step on a batch of so many parts makes and drops again: at least the gradients.
    fn matrices_of_a_step(&self, parts: usize) -> u64 {
        let _ = parts;
        1
    }

    /// Whether rows are means of Gaussians, so that [`Method::posterior_std`] gives something.
    fn is_gaussian(&self) -> bool {
        false
    }

    /// Draws a particle that predict, where particles are means of Gaussians.
    fn samples(&self) -> Option<usize> {
        None
    }

    /// A finished run whose particles are taken, instead of training any.
    fn from(&self) -> Option<&str> {
        None
    }

    /// What is fitted around the particles after training.
    fn laplace(&self) -> Option<laplace::Settings> {
        None
    }

    fn resolved(&self) -> toml::Table;
}

/// A registered method.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub paper: &'static str,
    /// (subspace, the name that the method has there in legends); elsewhere it is called `<subspace> × <key>`.
    pub names: &'static [(&'static str, &'static str)],
    pub read: fn(&Reader, &Circumstances) -> Box<dyn MethodSpec>,
}

/// Largest number of particles that a config may ask for.
const MAX_PARTICLES: usize = 100_000;
