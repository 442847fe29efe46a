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
use crate::metrics::{Average, Scores, value};
use crate::model::Model;
use crate::predict::{Members, Predictor};
use crate::predictions::Predictions;
use crate::subspace::Subspace;

/// The numbers of the held-out samples; all are `None` if no sample is held out, the last two if samples have no classes.
#[derive(Default)]
struct Validated {
    nll: Option<f64>,
    accuracy: Option<f64>,
    ece: Option<f64>,
}

/// Makes the row of an epoch.
pub(super) struct Validator<'a> {
    spec: &'a TrainSpec,
    model: &'a Model,
    subspace: &'a dyn Subspace,
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

    /// Returns the NLL, accuracy and ECE of the averaged logits on the held-out images, predicted by the rows that represent
    /// the posterior: those that would be kept. Free answers have the NLL of averaged probabilities alone.
    fn validated(&self, Particles { theta, method, .. }: &Particles) -> Result<Validated> {
        let (set, indices) = (self.material.validation(), &self.material.holdout.validation[..]);
        if indices.is_empty() {
            return Ok(Validated::default());
        }
        let _guard = no_grad_guard();
        let posterior = method.posterior(theta);
        let members = Members::Rows { subspace: self.subspace, rows: &&posterior };
        let predictor = Predictor::new(self.model, members, self.spec.particle_chunk);
        let size = self.spec.eval_batch_size;
        if self.model.head.writes_tokens() {
            let nll = predictor.answer_loss(self.group, set, indices, size).context("validation")?;
            return Ok(Validated { nll: Some(nll), ..Validated::default() });
        }
        let predictions = || -> Result<Predictions> {
            let logits = predictor.shared_logits(self.group, set, indices, size, &ProgressBar::hidden())?;
            let labels = indices.iter().map(|i| set.split.labels[*i as usize]).collect();
            predictor.predictions(logits, Some(labels))
        };
        let scores = Scores::compute(&predictions().context("validation")?)?;
        let of = |key: &str| Some(value(&scores, key, Average::Logit).unwrap_or(f64::NAN));
        Ok(Validated { nll: of("nll"), accuracy: of("accuracy"), ece: of("ece") })
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
