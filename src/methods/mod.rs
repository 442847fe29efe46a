//! Inference methods move the rows of `theta` `[n, P]`. Each has one file and is registered in [`METHODS`].
//!
//! A method sees the matrix, an [`Objective`] and the distances between particles, never a model.

pub mod chain;
pub mod diversity;
mod entries;
mod independent;
pub mod kernel;
pub mod laplace;
mod registry;
pub mod sharpness;
mod snapshots;
pub mod tfb;

use anyhow::{Result, bail};
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::optimizers::{Optimizer, curvature};
use crate::posterior::{Posterior, Predictive};
use crate::schema::Reader;
use crate::subspace::geometry::Geometry;

pub use entries::{METHODS, ivon, svgd};
pub use registry::{register, registered};

/// The loss and the gradient of every particle.
pub struct Evaluation {
    /// The mean minibatch loss of each particle, `[n]`.
    pub losses: Tensor,
    /// The gradient of each particle's own loss, `[n, P]`.
    pub gradients: Tensor,
}

/// The gradients of a part of the batch, and how its images differ in them.
pub struct Squared {
    /// The losses and gradients of the part, times its share of the batch.
    pub own: Evaluation,
    /// The sum over the images of the part of squared gradients of single images, over the size of the whole batch,
    /// `[n, P]`. Over all parts these add up to the mean of squared gradients.
    pub squares: Tensor,
}

/// Gradients mixed in weight space, and the particles' own.
pub struct Mixed {
    pub own: Evaluation,
    /// The mixed gradients, `[n, P]`.
    pub gradients: Tensor,
}

/// The logits of all particles on the batch of a step, without a graph, and the labels.
pub struct Outputs {
    /// The logits, `[n, B, C]`.
    pub logits: Tensor,
    /// The labels, `[n, B]`.
    pub labels: Tensor,
}

/// What enters the head on the batch of a step, for all particles, without a graph, and the labels.
pub struct HeadInputs {
    /// The features, normalised if the head sees them so, `[n, B, d]`.
    pub features: Tensor,
    /// The labels, `[n, B]`.
    pub labels: Tensor,
}

/// The loss of a step's batch, which a method may evaluate any number of times within the step.
pub trait Objective {
    /// Returns the losses and gradients at `theta: [n, P]` on the batch of the step.
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation>;

    /// Returns Σ_j c_ij G_j in the columns of particle i, where G_j is the gradient of L_j with respect to the weights
    /// of a block. There is one constant matrix c per block: `matrices: [L, n, n]`.
    ///
    /// # Errors
    /// Fails if the matrices have another shape, or if the objective has no weights.
    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let _ = (theta, matrices);
        bail!("this objective does not know the weights behind theta: it cannot mix gradients there")
    }

    /// Returns the losses and gradients on one part like [`evaluate_part`](Self::evaluate_part), and the squared gradients of
    /// its single images. It costs one copy of a particle and of its gradient for each image that is computed at once.
    ///
    /// # Errors
    /// Fails if the objective has no single images.
    fn evaluate_squared(&mut self, theta: &Tensor, part: usize) -> Result<Squared> {
        let _ = (theta, part);
        bail!("this objective does not know single images: it cannot square their gradients")
    }

    /// Returns the logits of all particles `theta: [n, P]`, for a loss that joins them.
    ///
    /// # Errors
    /// Fails if the objective has no logits.
    fn outputs(&mut self, theta: &Tensor) -> Result<Outputs> {
        let _ = theta;
        bail!("this objective does not know the logits behind its losses")
    }

    /// Returns Σ_bc G_ibc ∂z_ibc/∂θ_i, `[n, P]`, for the logits z at `theta: [n, P]` and `by_logits: [n, B, C]`, the
    /// gradient G of a loss with respect to them. With [`outputs`](Self::outputs) it gives the exact gradient of any loss
    /// of all particles' logits, however few particles and images go through the network at once.
    ///
    /// # Errors
    /// Fails if the objective has no logits.
    fn pull_back(&mut self, theta: &Tensor, by_logits: &Tensor) -> Result<Tensor> {
        let _ = (theta, by_logits);
        bail!("this objective does not know the logits behind its losses")
    }

    /// Returns what enters the head of all particles `theta: [n, P]`, for a loss that knows the head's form.
    ///
    /// # Errors
    /// Fails if the objective has no head.
    fn head_inputs(&mut self, theta: &Tensor) -> Result<HeadInputs> {
        let _ = theta;
        bail!("this objective does not know what enters the head")
    }

    /// Returns Σ_bj G_ibj ∂φ_ibj/∂θ_i, `[n, P]`, for what enters the head, φ, at `theta: [n, P]` and `by_features: [n, B, d]`,
    /// the gradient G of a loss with respect to it. The columns of the head itself get 0.
    ///
    /// # Errors
    /// Fails if the objective has no head.
    fn pull_back_head_inputs(&mut self, theta: &Tensor, by_features: &Tensor) -> Result<Tensor> {
        let _ = (theta, by_features);
        bail!("this objective does not know what enters the head")
    }

    /// Returns the number of parts that the batch is split into (`train.accumulate`).
    fn parts(&self) -> usize {
        1
    }

    /// Returns the share of the batch that is in a part.
    fn share(&self, part: usize) -> f64 {
        let _ = part;
        1.0
    }

    /// Returns the losses and gradients on one part, times its share. Over all parts they add up to
    /// [`evaluate`](Self::evaluate).
    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        let _ = part;
        self.evaluate(theta)
    }
}

/// The result of one training step. Tensors stay on the device.
pub struct Step {
    /// The losses, `[n]`.
    pub losses: Tensor,
    /// One number per entry of [`Method::diagnostics`], `[k]`.
    pub diagnostics: Option<Tensor>,
}

/// An inference method.
pub trait Method {
    /// Updates `theta: [n, P]` once; `factor` is the schedule's share of the learning rate.
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step>;

    /// Returns the names of the numbers that every step reports.
    fn diagnostics(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the posterior at `theta: [n, P]`. It may share theta, but no other tensor.
    fn posterior(&self, theta: &Tensor) -> Posterior {
        Posterior::Points { theta: theta.shallow_clone() }
    }

    /// Returns whether there is enough for a posterior already: a sampler needs draws. Until then no epoch is the best one.
    fn has_posterior(&self) -> bool {
        true
    }

    /// Returns warnings after an epoch, one line each. `epochs` holds the mean of every diagnostic of each epoch so
    /// far, by name.
    fn warnings(&self, epochs: &[&[(String, f64)]]) -> Vec<String> {
        let _ = epochs;
        Vec::new()
    }

    /// Returns remarks after training, one line each.
    ///
    /// # Errors
    /// Fails if reading from the device fails.
    fn remarks(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Stores everything that a resumed run needs besides `theta`.
    fn save(&self, state: &mut State);

    fn load(&mut self, state: &State) -> Result<()>;
}

/// The data from which a method is built.
pub struct Parts {
    /// The starting particles, `[n, P]`.
    pub theta: Tensor,
    pub seed: u64,
    pub optimizer: Box<dyn Optimizer>,
    pub geometry: Geometry,
    /// The largest L2 norm of one particle's gradient.
    pub clip_norm: Option<f64>,
}

impl Parts {
    /// Passes a direction to the optimizer, clipped for each particle, and the curvature of the `objective` at theta before it
    /// if the optimizer wants it.
    ///
    /// # Errors
    /// Fails if the objective fails.
    fn apply(
        &mut self,
        theta: &mut Tensor,
        direction: &Tensor,
        objective: &mut dyn Objective,
        factor: f64,
    ) -> Result<()> {
        if let Some(step) = self.optimizer.probe() {
            let gradients = |at: &Tensor| Ok(objective.evaluate(at)?.gradients);
            self.optimizer.observe(&curvature::diagonal(gradients, theta, self.seed, step)?);
        }
        match self.clip_norm {
            Some(norm) => self.optimizer.step(theta, &crate::optimizers::clip_rows(direction, norm), factor),
            None => self.optimizer.step(theta, direction, factor),
        }
        Ok(())
    }
}

/// Facts that decide whether a method can work, known before any weight is read.
pub struct Circumstances {
    /// The key of the subspace.
    pub subspace: &'static str,
}

/// The settings of a method, as read from `[method.*]`.
pub trait MethodSpec {
    /// Returns the number of particles n.
    fn particles(&self) -> i64;

    fn build(&self, parts: Parts) -> Box<dyn Method>;

    /// Checks the settings against the number of steps of a training, before its first.
    ///
    /// # Errors
    /// Fails if so few steps leave the method without a posterior.
    fn check_steps(&self, steps: usize) -> Result<()> {
        let _ = steps;
        Ok(())
    }

    /// Returns whether the method changes the learning rate along the training by a schedule of its own, which wants
    /// `train.schedule = "constant"`.
    fn schedules_rate(&self) -> bool {
        false
    }

    /// Checks the settings against the number of classes, before the first step.
    ///
    /// # Errors
    /// Fails if the method is not defined for so few classes.
    fn check_classes(&self, classes: i64) -> Result<()> {
        let _ = classes;
        Ok(())
    }

    /// Returns whether all particles must see the same images in each step, since the loss compares their predictions.
    fn needs_shared_batches(&self) -> bool {
        false
    }

    /// Returns how the posterior predicts unless the command line says otherwise.
    fn predictive(&self) -> Predictive {
        Predictive::Particles
    }

    /// Returns where particles come from, and what is fitted around them.
    fn course(&self) -> Course<'_> {
        Course::Train
    }

    /// Returns the number of matrices `[n, P]` that the method keeps from step to step, besides theta and those of the
    /// optimizer.
    fn kept_matrices(&self) -> u64 {
        0
    }

    /// Returns the number of matrices `[n, P]` that a step on a batch of `parts` parts creates and drops: at least the
    /// gradients.
    fn matrices_of_a_step(&self, parts: usize) -> u64 {
        let _ = parts;
        1
    }

    /// Returns whether a step asks for squared gradients of single images, which take copies of a particle.
    fn squares_images(&self) -> bool {
        false
    }

    /// Returns the number of matrices `[n, P]` in a posterior of this method.
    fn matrices_of_the_posterior(&self) -> u64 {
        1
    }

    fn resolved(&self) -> toml::Table;
}

/// What is fitted around trained particles.
#[derive(Clone, Copy, Debug)]
pub enum Fitting {
    /// Gaussians by the curvature of the loss.
    Laplace(laplace::Settings),
    /// Gaussians as wide as a tolerance allows.
    Tfb(tfb::Settings),
}

/// The source of the particles, and what is fitted around them.
pub enum Course<'a> {
    /// The particles are trained.
    Train,
    /// The particles are trained, and Gaussians are fitted around them.
    TrainThenFit(Fitting),
    /// The particles are those of a finished run, and Gaussians are fitted around them.
    Fit { run: &'a str, fitting: Fitting },
}

impl Course<'_> {
    /// Returns what is fitted, if anything is.
    pub fn fitting(&self) -> Option<Fitting> {
        match self {
            Course::Train => None,
            Course::TrainThenFit(fitting) | Course::Fit { fitting, .. } => Some(*fitting),
        }
    }

    /// Returns the settings of a Laplace approximation, if one is fitted.
    pub fn laplace(&self) -> Option<laplace::Settings> {
        match self.fitting() {
            Some(Fitting::Laplace(settings)) => Some(settings),
            Some(Fitting::Tfb(_)) | None => None,
        }
    }
}

/// The rule that turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The optimizer of the config.
    Optimizer,
    /// The method's own rule; the config then has `[optimizer.none]`.
    Own,
}

/// The meaning of a row of theta during training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsAre {
    /// A point that follows gradients. Equal points that see the same images stay equal.
    Points,
    /// The mean of a Gaussian; gradients are taken at draws from it.
    Gaussians,
    /// A state or a point that moves with noise of its own.
    Samples,
}

/// The number of rows that a method moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Particles {
    One,
    /// The number in the setting `particles`.
    Any,
}

/// A method with some settings, as `bella bench` measures it.
#[derive(Debug, PartialEq, Eq)]
pub struct Variant {
    /// The word for it on the command line.
    pub key: &'static str,
    /// The overrides of a config below the method's own table; `particles` comes from the command line.
    pub sets: &'static [&'static str],
    /// Whether the step asks the objective for mixed gradients or for logits, so that it cannot be timed with given
    /// gradients.
    pub asks_for_mixing: bool,
}

/// A registered method, with everything the rest of the program knows about it.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub paper: &'static str,
    pub update: Update,
    pub rows: RowsAre,
    pub particles: Particles,
    pub bench: &'static [Variant],
    /// Pairs (subspace, name of the method there in legends); in other subspaces the name is `<subspace> × <key>`.
    pub names: &'static [(&'static str, &'static str)],
    /// The same for n > 1 particles, in subspaces where the method has another name then, such as MultiSWAG.
    pub names_of_many: &'static [(&'static str, &'static str)],
    pub read: fn(&Reader, &Circumstances) -> Box<dyn MethodSpec>,
}

/// The largest number of particles in a config.
const MAX_PARTICLES: usize = 100_000;
