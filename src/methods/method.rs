//! An inference method at work: its steps, its posterior, and the parts that it is built from; and the method in which every particle
//! follows its own gradient.

use anyhow::Result;
use tch::Tensor;

use super::objective::Objective;
use crate::base::keeper::Keeper;
use crate::optimizers::{Optimizer, clip_rows, hessian_diagonal};
use crate::posterior::Posterior;
use crate::subspace::geometry::WeightSpace;

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

    /// Prepares the first step by the objective of its batch, before that step, for values that are found once from data.
    ///
    /// # Errors
    /// Fails if the objective fails, or if nothing is found.
    fn prepare(&mut self, _theta: &Tensor, _objective: &mut dyn Objective) -> Result<()> {
        Ok(())
    }

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
    fn warnings(&self, _epochs: &[&[(String, f64)]]) -> Vec<String> {
        Vec::new()
    }

    /// Returns remarks after training, one line each.
    ///
    /// # Errors
    /// Fails if reading from the device fails.
    fn remarks(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Keeps everything that a resumed run needs besides `theta`.
    ///
    /// # Errors
    /// Fails if something is missing where it is restored, or has another shape.
    fn keep(&mut self, keeper: &mut Keeper) -> Result<()>;
}

/// The data from which a method is built.
pub struct Parts {
    /// The starting particles, `[n, P]`.
    pub theta: Tensor,
    pub seed: u64,
    pub optimizer: Box<dyn Optimizer>,
    pub geometry: WeightSpace,
    /// The largest L2 norm of one particle's gradient.
    pub clip_norm: Option<f64>,
}

impl Parts {
    /// Passes a direction to the optimizer, clipped for each particle, and the curvature of the `objective` at theta before it
    /// if the optimizer wants it.
    ///
    /// # Errors
    /// Fails if the objective fails.
    pub(super) fn apply(
        &mut self,
        theta: &mut Tensor,
        direction: &Tensor,
        objective: &mut dyn Objective,
        factor: f64,
    ) -> Result<()> {
        if let Some(step) = self.optimizer.probe() {
            let gradients = |at: &Tensor| Ok(objective.losses(at)?.gradients);
            self.optimizer.observe(&hessian_diagonal(gradients, theta, self.seed, step)?);
        }
        match self.clip_norm {
            Some(norm) => self.optimizer.step(theta, &clip_rows(direction, norm), factor),
            None => self.optimizer.step(theta, direction, factor),
        }
        Ok(())
    }
}

/// A method in which every row follows its own gradient.
pub struct Independent {
    pub parts: Parts,
}

impl Method for Independent {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let evaluation = objective.losses(theta)?;
        self.parts.apply(theta, &evaluation.gradients, objective, factor)?;
        Ok(Step { losses: evaluation.losses, diagnostics: None })
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)
    }
}
