//! The row of an epoch: its losses, and the predictions on the held-out samples.

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use tch::no_grad_guard;

use super::context::Context;
use super::material::Material;
use super::particles::{EpochRow, Particles};
use super::schedule::Rates;
use crate::analysis::sensitivity::sensitivities;
use crate::experiment::TrainSpec;
use crate::machine::parallel::ProcessGroup;
use crate::model::Model;
use crate::predict::{Members, Predictor};
use crate::subspace::Subspace;
use crate::tasks::{Batched, Task, Validated};

/// Makes the row of an epoch.
pub(super) struct Validator<'a> {
    spec: &'a TrainSpec,
    model: &'a Model,
    subspace: &'a dyn Subspace,
    task: &'a dyn Task,
    material: &'a Material,
    group: &'a ProcessGroup,
    rates: Rates,
}

impl<'a> Validator<'a> {
    pub fn new(context: &Context<'a>) -> Validator<'a> {
        Validator {
            spec: context.spec(),
            model: context.model(),
            subspace: context.subspace,
            task: &*context.experiment.task,
            material: context.material,
            group: context.group(),
            rates: context.rates(),
        }
    }

    /// Returns the row of the epoch whose steps are done.
    ///
    /// # Errors
    /// Fails if predictions fail.
    pub fn row(&self, particles: &Particles, images_per_second: Option<f64>) -> Result<EpochRow> {
        let Particles { method, progress, .. } = particles;
        let (train_loss, diagnostics) = progress.means()?;
        let Validated { nll, accuracy, ece } = self.validated(particles)?;
        let names = method.diagnostics().iter().map(|name| name.to_string());
        let mut row = EpochRow {
            epoch: progress.epoch + 1,
            step: progress.steps,
            rate_factor: self.rates.factor(progress.steps - 1),
            train_loss,
            validation_nll: nll,
            validation_accuracy: accuracy,
            validation_ece: ece,
            diagnostics: names.zip(diagnostics).collect(),
            wall_seconds: progress.wall_seconds(),
            images_per_second,
        };
        row.diagnostics.extend(self.leave_one_out(particles)?.map(|loss| ("loo_loss".to_string(), loss)));
        Ok(row)
    }

    /// Returns the numbers of the held-out samples, predicted by the rows that represent the posterior: those that would be
    /// kept.
    fn validated(&self, Particles { theta, method, .. }: &Particles) -> Result<Validated> {
        let (set, indices) = (self.material.validation(), &self.material.holdout.validation[..]);
        if indices.is_empty() {
            return Ok(Validated::default());
        }
        let _guard = no_grad_guard();
        let posterior = method.posterior(theta);
        let members = Members::Rows { subspace: self.subspace, rows: &&posterior };
        let predictor = Predictor::new(self.model, members, self.spec.particle_chunk);
        let held_out = Batched { group: self.group, set, indices, batch_size: self.spec.eval_batch_size };
        self.task.validate(&predictor, &held_out).context("validation")
    }

    /// Returns the mean leave-one-out loss of the first training images, if the config asks for it.
    fn leave_one_out(&self, Particles { theta, method, .. }: &Particles) -> Result<Option<f64>> {
        let Material { train, holdout, .. } = self.material;
        let count = self.spec.loo_samples.min(holdout.train.len());
        if count == 0 {
            return Ok(None);
        }
        let posterior = method.posterior(theta);
        let images = (train, &holdout.train[..count]);
        let found = sensitivities(self.model, self.subspace, &posterior, images, &ProgressBar::hidden())
            .context("train.loo_samples")?;
        Ok(Some(found.iter().map(|one| one.loo_loss).sum::<f64>() / count as f64))
    }
}
