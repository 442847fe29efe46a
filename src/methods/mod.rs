//! Inference methods: how the rows of `theta` `[n, P]` move. One file a method, registered in [`METHODS`].
//!
//! A method sees the matrix, an [`Objective`] and distances between particles; never a model.

mod ensemble;
pub mod kernel;
mod map;
pub mod svgd;

use anyhow::Result;
use tch::Tensor;

use crate::config::Reader;
use crate::optimizers::Optimizer;
use crate::state::State;
use crate::subspace::geometry::Geometry;

/// Loss and gradient of every particle.
pub struct Evaluation {
    /// Mean minibatch loss of each particle, `[n]`.
    pub losses: Tensor,
    /// Gradient of each particle's own loss, `[n, P]`.
    pub gradients: Tensor,
}

/// What a method may ask of the data, as often as it likes within a step.
pub trait Objective {
    /// Losses and gradients at `theta: [n, P]` on the step's batch.
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation>;
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

    /// Everything that a resumed run needs besides `theta`.
    fn save(&self, state: &mut State);

    fn load(&mut self, state: &State) -> Result<()>;
}

/// What a method is built from.
pub struct Parts {
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

    fn resolved(&self) -> toml::Table;
}

/// A registered method.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub paper: &'static str,
    pub read: fn(&Reader, &Circumstances) -> Box<dyn MethodSpec>,
}

/// Every known method.
pub static METHODS: &[&Entry] = &[&map::ENTRY, &ensemble::ENTRY, &svgd::ENTRY];

/// Largest number of particles that a config may ask for.
const MAX_PARTICLES: usize = 100_000;
