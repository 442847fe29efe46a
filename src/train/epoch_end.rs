//! What follows an epoch: validation, its row of `train.csv`, the best particles, warnings.

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use tch::no_grad_guard;

use super::progress::EpochRow;
use super::{Clock, Trainer, history, schedule};
use crate::analysis::sensitivity::sensitivities;
use crate::data::batches::ImageSet;
use crate::experiment::Selection;
use crate::machine::parallel::World;
use crate::metrics::Average;
use crate::posterior::Mixture;
use crate::predict::{Members, Predictor};
use crate::predictions::Predictions;

/// Share of the widest mean distance so far below which particles count as collapsed.
const COLLAPSED_SHARE: f64 = 0.01;

impl Trainer<'_> {
    /// Validates, writes the epoch's row and keeps the best particles.
    pub(super) fn close_epoch(&mut self, clock: &Clock) -> Result<()> {
        self.world.align(&mut self.theta)?;
        let (train_loss, diagnostics) = self.progress.means()?;
        let names = self.method.diagnostics();
        let total = self.spec.epochs * self.steps_per_epoch();
        let validation = self.validate()?;
        let mut row = EpochRow {
            epoch: self.progress.epoch + 1,
            step: self.progress.steps,
            rate_factor: schedule::factor(self.spec.schedule, self.progress.steps - 1, self.spec.warmup_steps, total),
            train_loss,
            validation_nll: None,
            validation_accuracy: None,
            validation_ece: None,
            diagnostics: names.iter().map(|n| n.to_string()).zip(diagnostics).collect(),
            wall_seconds: self.progress.earlier_seconds + clock.started.elapsed().as_secs_f64(),
            images_per_second: clock.rate(),
        };
        row.diagnostics.extend(self.leave_one_out()?.map(|loss| ("loo_loss".to_string(), loss)));
        if let Some([nll, accuracy, ece]) = validation {
            (row.validation_nll, row.validation_accuracy, row.validation_ece) = (Some(nll), Some(accuracy), Some(ece));
            if self.spec.select == Selection::Best {
                let method = &self.method;
                self.progress.offer(nll, &self.theta, || method.posterior_std());
            }
        }
        self.warn_on_collapse(&row);
        tracing::info!("{}", history::describe(&row, self.spec.epochs));
        self.progress.finish_epoch(row);
        if self.world.leads() { history::write(self.run, &self.progress.rows) } else { Ok(()) }
    }

    /// NLL, accuracy and ECE of averaged logits on the held-out images.
    fn validate(&self) -> Result<Option<[f64; 3]>> {
        if self.holdout.validation.is_empty() {
            return Ok(None);
        }
        let _guard = no_grad_guard();
        let members = Members::Rows { subspace: self.subspace, rows: &self.theta };
        let predictor = Predictor::new(self.model, members, self.spec.particle_chunk);
        let images = (self.validation_images, &self.holdout.validation[..]);
        let predictions =
            predictions(&predictor, images, self.spec.eval_batch_size, self.world).context("validation")?;
        let scores = crate::metrics::Scores::compute(&predictions)?;
        let value = |key: &str| crate::metrics::value(&scores, key, Average::Logit).unwrap_or(f64::NAN);
        Ok(Some([value("nll"), value("accuracy"), value("ece")]))
    }

    /// Mean leave-one-out loss of the first training images, where the config asks for it.
    fn leave_one_out(&self) -> Result<Option<f64>> {
        let count = self.spec.loo_samples.min(self.holdout.train.len());
        let Some(std) = (count > 0).then(|| self.method.posterior_std()).flatten() else { return Ok(None) };
        let theta = self.theta.shallow_clone();
        let mixture = Mixture { theta, std: Some(std), laplace: None, seed: self.seed };
        let images = (self.images, &self.holdout.train[..count]);
        let found = sensitivities(self.model, self.subspace, &mixture, images, &ProgressBar::hidden())
            .context("train.loo_samples")?;
        Ok(Some(found.iter().map(|one| one.loo_loss).sum::<f64>() / count as f64))
    }

    fn warn_on_collapse(&self, row: &EpochRow) {
        let value = |name: &str| row.diagnostics.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        let earlier = self.progress.rows.iter().flat_map(|row| &row.diagnostics);
        let widest = earlier.filter(|(name, _)| name == "mean_distance").map(|(_, v)| *v).fold(0.0, f64::max);
        if value("mean_distance").is_some_and(|distance| distance < COLLAPSED_SHARE * widest) {
            tracing::warn!("the particles collapse to one point in epoch {}: raise method.svgd.gamma", row.epoch);
        }
        if value("repulsion_ratio").is_some_and(|ratio| ratio > 10.0) {
            tracing::warn!("repulsion outweighs the gradients in epoch {}: lower method.svgd.gamma", row.epoch);
        }
    }
}

/// Predictions on some images of a set, computed by all processes together.
fn predictions(
    predictor: &Predictor,
    (set, indices): (&ImageSet, &[u32]),
    batch_size: usize,
    world: &World,
) -> Result<Predictions> {
    let logits = predictor.shared_logits(world, set, indices, batch_size, &ProgressBar::hidden())?;
    let shape = crate::predictions::Shape {
        members: predictor.members(),
        samples: indices.len(),
        classes: predictor.model.head.classes() as usize,
    };
    let labels = indices.iter().map(|i| set.split.labels[*i as usize]).collect();
    Predictions::new(shape, logits, labels)
}
