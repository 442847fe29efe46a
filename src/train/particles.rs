//! The particles in training, with their method, and how far they are trained: everything that a resumed run needs.

use anyhow::{Result, bail};
use tch::{Kind, Tensor};

use super::average::Average;
use super::context::Context;
use super::progress::{ADVICE, EpochRow, Progress};
use super::scaling::{LossScale, NotFinite, Watched};
use crate::base::tensor::host_f64;
use crate::machine::parallel::ProcessGroup;
use crate::methods::{Method, Objective, Parts, Step};
use crate::posterior::Posterior;
use crate::subspace::geometry::WeightSpace;

/// Everything that steps and epochs change.
pub(super) struct Particles {
    /// The particles, `[n, P]` in f32.
    pub theta: Tensor,
    /// The average of theta that predicts in its place, if there is one.
    pub average: Option<Average>,
    /// The scale of the losses, where the compute type needs one.
    pub scale: Option<LossScale>,
    pub method: Box<dyn Method>,
    pub progress: Progress,
}

impl Particles {
    /// Takes the particles `theta: [n, P]` before the first step.
    ///
    /// # Errors
    /// Fails if the learning rates of columns are none of this network's.
    pub fn at_start(context: &Context, theta: Tensor) -> Result<Particles> {
        let (training, seed) = (context.training, context.experiment.seed);
        let factors = context.rate_factors()?;
        let method = training.method.spec.build(Parts {
            theta: theta.shallow_clone(),
            seed,
            optimizer: training.optimizer.spec.build(&theta, factors.as_ref()),
            geometry: WeightSpace::new(context.subspace.layout()),
            clip_norm: training.train.clip_norm,
        });
        let progress = Progress::new(context.particles(), method.diagnostics().len(), context.session.device);
        let average = training.train.ema.as_ref().map(|ema| Average::new(ema, &theta));
        let scale = LossScale::of(context.model().kind);
        Ok(Particles { theta, average, scale, method, progress })
    }

    /// Takes a step on the batch of an objective; `None` if it is skipped since gradients in f16 were not finite.
    ///
    /// # Errors
    /// Fails if the method does, or if no step can be finite.
    pub fn step(&mut self, objective: &mut dyn Objective, factor: f64) -> Result<Option<Step>> {
        let Particles { theta, average, scale, method, progress } = self;
        let step = match scale {
            None => Some(method.step(theta, objective, factor)?),
            Some(scale) => match method.step(theta, &mut Watched { objective }, factor) {
                Ok(step) => {
                    scale.advance();
                    Some(step)
                }
                Err(error) if error.is::<NotFinite>() => {
                    scale.skip(progress.steps + 1)?;
                    None
                }
                Err(error) => return Err(error),
            },
        };
        match &step {
            Some(step) => progress.add(step),
            None => progress.skip(),
        }
        if let Some(average) = average {
            average.update(theta, progress.steps);
        }
        Ok(step)
    }

    /// Returns the factor of the losses on the way back.
    pub fn magnified(&self) -> f64 {
        self.scale.as_ref().map_or(1.0, |scale| scale.factor)
    }

    /// Makes theta, and its average, the same in all processes.
    ///
    /// # Errors
    /// Fails if a process cannot be reached.
    pub fn align(&mut self, group: &ProcessGroup) -> Result<()> {
        group.align(&mut self.theta)?;
        self.average.as_mut().map_or(Ok(()), |average| group.align(&mut average.theta))
    }

    /// Returns the posterior at theta, or at its average.
    pub fn posterior(&self) -> Posterior {
        self.method.posterior(self.average.as_ref().map_or(&self.theta, |average| &average.theta))
    }

    /// Checks that theta is finite, since a loss may still be finite when the step after it is not.
    ///
    /// # Errors
    /// Fails with the first particle that has a NaN or infinite parameter.
    pub fn check_finite(&self) -> Result<()> {
        let finite = host_f64(&self.theta.isfinite().all_dim(1, false).to_kind(Kind::Double))?;
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
