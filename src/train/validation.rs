//! The row of an epoch with the predictions on the held-out samples, the epoch that gives the posterior, and the end of a training
//! that no longer gains.

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use tch::no_grad_guard;

use super::context::{Context, Material, Rates};
use super::particles::Particles;
use super::progress::{EpochRow, Progress};
use crate::analysis::sensitivity::sensitivities;
use crate::base::random::some_of;
use crate::data::batches::Samples;
use crate::experiment::{Criterion, Selection, TrainSpec};
use crate::machine::parallel::ProcessGroup;
use crate::metrics::Metric;
use crate::model::Model;
use crate::posterior::Posterior;
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
    seed: u64,
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
            seed: context.experiment.seed,
        }
    }

    /// Returns the row of the epoch whose steps are done.
    ///
    /// # Errors
    /// Fails if predictions fail.
    pub fn row(&self, particles: &Particles, images_per_second: Option<f64>) -> Result<EpochRow> {
        let Particles { method, progress, .. } = particles;
        let (train_loss, diagnostics) = progress.means()?;
        let Validated { nll, accuracy, ece, criterion } = self.validated(particles)?;
        let names = method.diagnostics().iter().map(|name| name.to_string());
        let mut row = EpochRow {
            epoch: progress.epoch + 1,
            step: progress.steps,
            rate_factor: self.rates.factor(progress.steps - 1),
            train_loss,
            validation_nll: nll,
            validation_accuracy: accuracy,
            validation_ece: ece,
            validation_other: None,
            diagnostics: names.zip(diagnostics).collect(),
            wall_seconds: progress.wall_seconds(),
            images_per_second,
            has_posterior: method.has_posterior(),
        };
        let by = self.spec.select_by;
        if !row.has_column(by) {
            row.validation_other = Some((by.column(), criterion));
        }
        if let Some(scale) = &particles.scale {
            row.diagnostics.push(("loss_scale".to_string(), scale.factor));
            row.diagnostics.push(("skipped_steps".to_string(), scale.skipped as f64));
        }
        row.diagnostics.extend(self.leave_one_out(particles)?.map(|loss| ("loo_loss".to_string(), loss)));
        Ok(row)
    }

    /// Returns the numbers of the held-out samples, predicted by the rows that represent the posterior: those that would be
    /// kept.
    fn validated(&self, particles: &Particles) -> Result<Validated> {
        let (set, indices) = (self.material.validation(), &self.material.holdout.validation[..]);
        if indices.is_empty() {
            return Ok(Validated::default());
        }
        let _guard = no_grad_guard();
        let posterior = particles.posterior();
        let members = Members::Rows { subspace: self.subspace, rows: &&posterior };
        let predictor = Predictor::new(self.model, members, self.spec.particle_chunk);
        let held_out = Batched { group: self.group, set, indices, batch_size: self.spec.eval_batch_size };
        let Criterion(metric) = self.spec.select_by;
        self.task.validate(&predictor, &held_out, metric).context("validation")
    }

    /// Returns the mean leave-one-out loss of some training images, the same ones after every epoch, if the config asks for it.
    fn leave_one_out(&self, particles: &Particles) -> Result<Option<f64>> {
        let Material { train, holdout, .. } = self.material;
        let count = self.spec.loo_samples.min(holdout.train.len());
        if count == 0 {
            return Ok(None);
        }
        let posterior = particles.posterior();
        let images = Samples { set: train, indices: &some_of(&holdout.train, count, self.seed) };
        let found = sensitivities(self.model, self.subspace, &posterior, images, &ProgressBar::hidden())
            .context("train.loo_samples")?;
        Ok(Some(found.iter().map(|one| one.loo_loss).sum::<f64>() / count as f64))
    }
}

/// The rules by which an epoch is selected and training ends.
#[derive(Clone, Copy)]
pub(super) struct Selector {
    select: Selection,
    by: Criterion,
    early_stop: Option<usize>,
    epochs: usize,
}

impl Selector {
    pub fn new(spec: &TrainSpec) -> Selector {
        Selector { select: spec.select, by: spec.select_by, early_stop: spec.early_stop, epochs: spec.epochs }
    }

    /// Returns whether epochs have not become better for so many epochs that training ends. It is a function of the
    /// epochs so far, so that a resumed run ends where an uninterrupted one does. A method that has no posterior yet goes
    /// on.
    pub fn has_stalled(&self, particles: &Particles) -> bool {
        let stalled = |patience| particles.progress.epochs_without_gain(self.by) >= patience;
        self.early_stop.is_some_and(stalled) && particles.method.has_posterior()
    }

    /// Keeps the posterior of the epoch that has just ended, if the best one is to be selected and it is the best so far.
    pub fn offer(&self, row: &EpochRow, particles: &mut Particles) {
        if let Some(value) = row.criterion(self.by)
            && self.select == Selection::Best
            && row.has_posterior
        {
            let posterior = particles.posterior();
            particles.progress.offer(self.by, value, || posterior);
        }
    }

    /// Returns what the epoch lacks, in words: a value of the metric by which epochs are compared. `None` if it has one, or if nothing is
    /// compared.
    pub fn lacks(&self, row: &EpochRow) -> Option<String> {
        let compares = row.validation_nll.is_some() && (self.select == Selection::Best || self.early_stop.is_some());
        (compares && row.criterion(self.by).is_none()).then(|| {
            let Metric { key, definition, .. } = self.by.0;
            format!("train.select_by = \"{key}\": has no value for the held-out images ({definition})")
        })
    }

    /// Checks that epochs could be compared.
    ///
    /// # Errors
    /// Fails if the metric had a value in no epoch.
    pub fn check(&self, progress: &Progress) -> Result<()> {
        let all: Option<Vec<String>> = progress.rows.iter().map(|row| self.lacks(row)).collect();
        match all.as_deref() {
            Some([what, ..]) => bail!("{what} in any epoch, so that none is the best: choose another metric"),
            _ => Ok(()),
        }
    }

    /// Returns a sentence that says which epoch was selected and why, and why training ended.
    pub fn choice(&self, progress: &Progress) -> String {
        let Progress { epoch, best, .. } = progress;
        let selected = match (best, self.select) {
            (Some(best), Selection::Best) => {
                let (value, short, extreme) = (best.value, self.by.0.short, self.by.best());
                format!(
                    "epoch {} of {epoch} gives the posterior: its validation {short} {value:.4} is the {extreme}",
                    best.epoch
                )
            }
            _ => format!("epoch {epoch}, the last one, gives the posterior"),
        };
        let stale = progress.epochs_without_gain(self.by);
        match *epoch < self.epochs {
            true => {
                format!(
                    "{selected}; training ended early, after {stale} epochs without a {} one (train.early_stop)",
                    self.by.better()
                )
            }
            false => selected,
        }
    }

    /// Returns the number of the epoch whose posterior was selected.
    pub fn epoch(&self, progress: &Progress) -> usize {
        match (&progress.best, self.select) {
            (Some(best), Selection::Best) => best.epoch,
            _ => progress.epoch,
        }
    }

    /// Returns the selected posterior.
    pub fn posterior(&self, mut particles: Particles) -> Posterior {
        match (particles.progress.best.take(), self.select) {
            (Some(best), Selection::Best) => best.posterior,
            _ => particles.posterior(),
        }
    }
}
