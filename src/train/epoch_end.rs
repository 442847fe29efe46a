//! The work at the end of an epoch: validation, its row of `train.csv`, the best particles, and warnings.

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use tch::no_grad_guard;

use super::history;
use super::material::Material;
use super::progress::EpochRow;
use super::trainer::{Clock, Trainer};
use crate::analysis::sensitivity::sensitivities;
use crate::data::batches::SampleSet;
use crate::experiment::Selection;
use crate::machine::parallel::World;
use crate::metrics::Average;
use crate::predict::{Members, Predictor};
use crate::predictions::Predictions;

/// The numbers of the held-out samples.
struct Validated {
    nll: f64,
    accuracy: Option<f64>,
    ece: Option<f64>,
}

impl Trainer<'_> {
    /// Validates, writes the row of the epoch and keeps the best particles.
    pub(super) fn close_epoch(&mut self, clock: &Clock) -> Result<()> {
        self.world.align(&mut self.theta)?;
        let (train_loss, diagnostics) = self.progress.means()?;
        let names = self.method.diagnostics();
        let validation = self.validate()?;
        let mut row = EpochRow {
            epoch: self.progress.epoch + 1,
            step: self.progress.steps,
            rate_factor: self.rate_factor(self.progress.steps - 1),
            train_loss,
            validation_nll: None,
            validation_accuracy: None,
            validation_ece: None,
            diagnostics: names.iter().map(|n| n.to_string()).zip(diagnostics).collect(),
            wall_seconds: self.progress.earlier_seconds + clock.started.elapsed().as_secs_f64(),
            images_per_second: clock.rate(),
        };
        row.diagnostics.extend(self.leave_one_out()?.map(|loss| ("loo_loss".to_string(), loss)));
        if let Some(Validated { nll, accuracy, ece }) = validation {
            (row.validation_nll, row.validation_accuracy, row.validation_ece) = (Some(nll), accuracy, ece);
            if self.spec.select == Selection::Best && self.method.has_posterior() {
                let (method, theta) = (&self.method, &self.theta);
                self.progress.offer(nll, || method.posterior(theta));
            }
        }
        self.warn(&row);
        tracing::info!("{}", history::describe(&row, self.spec.epochs));
        history::describe_diagnostics(&row).iter().for_each(|line| tracing::debug!("{line}"));
        self.followers.epoch(&row);
        self.progress.finish_epoch(row);
        if self.world.leads() { history::write(self.folder, &self.progress.rows) } else { Ok(()) }
    }

    /// Returns the NLL, accuracy and ECE of the averaged logits on the held-out images, predicted by the rows that represent
    /// the posterior: those that would be kept. Free answers have the NLL of averaged probabilities alone.
    fn validate(&self) -> Result<Option<Validated>> {
        if self.material.holdout.validation.is_empty() {
            return Ok(None);
        }
        let _guard = no_grad_guard();
        let posterior = self.method.posterior(&self.theta);
        let members = Members::Rows { subspace: self.subspace, rows: &&posterior };
        let predictor = Predictor::new(self.model, members, self.spec.particle_chunk);
        let images = (self.material.validation(), &self.material.holdout.validation[..]);
        if self.model.head.writes_tokens() {
            let (set, indices) = images;
            let nll = predictor.answer_loss(self.world, set, indices, self.spec.eval_batch_size);
            let nll = nll.context("validation")?;
            return Ok(Some(Validated { nll, accuracy: None, ece: None }));
        }
        let predictions =
            predictions(&predictor, images, self.spec.eval_batch_size, self.world).context("validation")?;
        let scores = crate::metrics::Scores::compute(&predictions)?;
        let value = |key: &str| crate::metrics::value(&scores, key, Average::Logit).unwrap_or(f64::NAN);
        Ok(Some(Validated { nll: value("nll"), accuracy: Some(value("accuracy")), ece: Some(value("ece")) }))
    }

    /// Returns the mean leave-one-out loss of the first training images, if the config asks for it.
    fn leave_one_out(&self) -> Result<Option<f64>> {
        let Material { train, holdout, .. } = self.material;
        let count = self.spec.loo_samples.min(holdout.train.len());
        if count == 0 {
            return Ok(None);
        }
        let posterior = self.method.posterior(&self.theta);
        let images = (train, &holdout.train[..count]);
        let found = sensitivities(self.model, self.subspace, &posterior, images, &ProgressBar::hidden())
            .context("train.loo_samples")?;
        Ok(Some(found.iter().map(|one| one.loo_loss).sum::<f64>() / count as f64))
    }

    /// Logs the warnings of the method about the epochs so far, of which `row` is the last.
    fn warn(&self, row: &EpochRow) {
        let earlier = self.progress.rows.iter().chain([row]);
        let epochs: Vec<&[(String, f64)]> = earlier.map(|row| &row.diagnostics[..]).collect();
        for warning in self.method.warnings(&epochs) {
            tracing::warn!("epoch {}: {warning}", row.epoch);
        }
    }
}

/// Returns predictions on some images of a set, computed by all processes together.
fn predictions(
    predictor: &Predictor,
    (set, indices): (&SampleSet, &[u32]),
    batch_size: usize,
    world: &World,
) -> Result<Predictions> {
    let logits = predictor.shared_logits(world, set, indices, batch_size, &ProgressBar::hidden())?;
    let labels = indices.iter().map(|i| set.split.labels[*i as usize]).collect();
    predictor.predictions(logits, Some(labels))
}
