//! The particles in training, with their method.

use anyhow::{Result, bail};
use tch::Tensor;

use super::context::Context;
use super::progress::{EpochRow, Progress};
use crate::base::tensor::host_f64;
use crate::methods::{Method, Parts};
use crate::subspace::geometry::Geometry;

/// The advice printed if a loss or a parameter is not finite.
pub(super) const ADVICE: &str = "lower optimizer.*.lr, raise train.warmup_steps, set train.clip_norm = 1.0, or use train.precision = \
                      \"f32\"; the resume file holds finite particles only";

/// Everything that steps and epochs change.
pub(super) struct Particles {
    /// The particles, `[n, P]` in f32.
    pub theta: Tensor,
    pub method: Box<dyn Method>,
    pub progress: Progress,
}

impl Particles {
    /// Returns the particles before the first step.
    ///
    /// # Errors
    /// Fails if there is no memory for them.
    pub fn at_start(context: &Context) -> Result<Particles> {
        let (training, seed) = (context.training, context.experiment.seed);
        let theta = context.session.initial_theta(seed, context.particles())?;
        let method = training.method.spec.build(Parts {
            theta: theta.shallow_clone(),
            seed,
            optimizer: training.optimizer.spec.build(&theta),
            geometry: Geometry::new(context.subspace.layout()),
            clip_norm: training.train.clip_norm,
        });
        let progress = Progress::new(context.particles(), method.diagnostics().len(), context.session.device);
        Ok(Particles { theta, method, progress })
    }

    /// Checks that theta is finite, since a loss may still be finite when the step after it is not.
    ///
    /// # Errors
    /// Fails with the first particle that has a NaN or infinite parameter.
    pub fn check_finite(&self) -> Result<()> {
        let finite = host_f64(&self.theta.isfinite().all_dim(1, false).to_kind(tch::Kind::Double))?;
        match finite.iter().position(|ok| *ok == 0.0) {
            Some(particle) => bail!(
                "particle {particle} has parameters that are not finite after step {}: {ADVICE}",
                self.progress.steps
            ),
            None => Ok(()),
        }
    }

    /// Returns the warnings of the method about the epochs so far, of which `row` is the last.
    pub fn warnings(&self, row: &EpochRow) -> Vec<String> {
        let all = self.progress.rows.iter().chain([row]);
        let epochs: Vec<&[(String, f64)]> = all.map(|row| &row.diagnostics[..]).collect();
        self.method.warnings(&epochs)
    }
}
