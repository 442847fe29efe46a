//! The counters, sums and rows of a run, and its best epoch.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::host_f64;
use crate::base::tensor_file::State;
use crate::experiment::Criterion;
use crate::machine::processor_seconds;
use crate::methods::Step;
use crate::posterior::Posterior;

/// The advice printed if a loss or a parameter is not finite.
pub(super) const ADVICE: &str = "lower optimizer.*.lr, or method.*.lr where the method is its own optimizer, or method.*.kl_lr, raise \
    train.warmup_steps, set train.clip_norm = 1.0 beside an optimizer, or use train.precision = \"f32\"; the resume file holds finite particles only";

/// The prefix of the names of the best epoch's tensors.
const BEST: &str = "progress.best_";

/// The column of `train.csv` that is 1 from the epoch on from which the method has a posterior, and 0 before.
pub const HAS_POSTERIOR: &str = "has_posterior";

/// One row of `train.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRow {
    /// The number of the epoch, from 1.
    pub epoch: usize,
    /// The number of steps done.
    pub step: usize,
    /// The share of the base learning rate at the last step of the epoch.
    pub rate_factor: f64,
    /// The mean over particles and steps.
    pub train_loss: f64,
    pub validation_nll: Option<f64>,
    pub validation_accuracy: Option<f64>,
    pub validation_ece: Option<f64>,
    /// The metric by which epochs are compared, with its column, if it is none of these; its value is absent where it is not defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_other: Option<(String, Option<f64>)>,
    /// The name of each diagnostic and its mean over the steps of the epoch.
    pub diagnostics: Vec<(String, f64)>,
    pub wall_seconds: f64,
    /// The training speed; absent if the last step of the epoch was done before an interruption.
    pub images_per_second: Option<f64>,
    /// Whether the method had a posterior already. Until then no epoch is the best one.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub has_posterior: bool,
}

fn yes() -> bool {
    true
}

impl EpochRow {
    /// Returns the values of an epoch by the columns of `train.csv`.
    pub fn values(&self) -> Vec<(&str, Option<f64>)> {
        let mut values = vec![
            ("epoch", Some(self.epoch as f64)),
            ("step", Some(self.step as f64)),
            ("rate_factor", Some(self.rate_factor)),
            ("train_loss", Some(self.train_loss)),
            ("validation_nll_lm", self.validation_nll),
            ("validation_accuracy_lm", self.validation_accuracy),
            ("validation_ece_lm", self.validation_ece),
        ];
        values.extend(self.validation_other.iter().map(|(name, value)| (name.as_str(), *value)));
        values.extend(self.diagnostics.iter().map(|(name, value)| (name.as_str(), Some(*value))));
        values.extend([("wall_seconds", Some(self.wall_seconds)), ("images_per_second", self.images_per_second)]);
        values.push((HAS_POSTERIOR, Some(f64::from(u8::from(self.has_posterior)))));
        values
    }

    /// Returns the value of the metric by which epochs are compared; `None` where it is not defined or not a number, which is no gain.
    pub fn criterion(&self, by: Criterion) -> Option<f64> {
        let column = by.column();
        let found = self.values().into_iter().find(|(name, _)| *name == column);
        found.and_then(|(_, value)| value).filter(|value| !value.is_nan())
    }

    /// Returns whether one of the columns of every row has the metric.
    pub fn has_column(&self, by: Criterion) -> bool {
        let column = by.column();
        self.values().iter().any(|(name, _)| *name == column)
    }
}

/// The best epoch so far.
pub struct Best {
    pub epoch: usize,
    /// The value of the metric by which it is the best.
    pub value: f64,
    pub posterior: Posterior,
}

/// The counters and sums of a run.
pub struct Progress {
    /// The number of epochs finished.
    pub epoch: usize,
    /// The number of steps done in the current epoch.
    pub step: usize,
    /// The number of steps done in all epochs.
    pub steps: usize,
    /// The number of steps of the current epoch that were skipped.
    skipped: usize,
    pub rows: Vec<EpochRow>,
    pub best: Option<Best>,
    /// The seconds of training before a time, which is that of the start of this process or of a change of the share.
    pub earlier_seconds: f64,
    started: Instant,
    /// The same of the processor, where the system tells.
    earlier_processor: f64,
    started_processor: Option<f64>,
    /// This training's share of the seconds since then; below 1 where runs are trained together.
    share: f64,
    /// The sum of the losses over the steps of the epoch, `[n]` in f64, on the device.
    loss_sum: Tensor,
    /// The sum of the diagnostics over the steps of the epoch, `[k]` in f64.
    diagnostic_sum: Tensor,
}

/// The part that is stored as text.
#[derive(Serialize, Deserialize)]
struct Counters {
    epoch: usize,
    step: usize,
    steps: usize,
    #[serde(default)]
    skipped: usize,
    rows: Vec<EpochRow>,
    best: Option<(usize, f64)>,
    wall_seconds: f64,
    #[serde(default)]
    processor_seconds: Option<f64>,
}

impl Progress {
    pub fn new(particles: i64, diagnostics: usize, device: Device) -> Progress {
        let zeros = |count: i64| Tensor::zeros([count], (Kind::Double, device));
        Progress {
            epoch: 0,
            step: 0,
            steps: 0,
            skipped: 0,
            rows: Vec::new(),
            best: None,
            earlier_seconds: 0.0,
            started: Instant::now(),
            earlier_processor: 0.0,
            started_processor: processor_seconds(),
            share: 1.0,
            loss_sum: zeros(particles),
            diagnostic_sum: zeros(diagnostics as i64),
        }
    }

    /// Adds a step without reading from the device.
    pub fn add(&mut self, Step { losses, diagnostics }: &Step) {
        self.step += 1;
        self.steps += 1;
        self.loss_sum += losses.to_kind(Kind::Double);
        if let Some(values) = diagnostics {
            self.diagnostic_sum += values;
        }
    }

    /// Counts a step that was skipped.
    pub fn skip(&mut self) {
        self.step += 1;
        self.steps += 1;
        self.skipped += 1;
    }

    /// Returns means over the steps of the epoch so far, without those that were skipped: of the loss over particles, and of each
    /// diagnostic.
    ///
    /// # Errors
    /// Fails if all steps were skipped.
    pub fn means(&self) -> Result<(f64, Vec<f64>)> {
        ensure!(
            self.step == 0 || self.skipped < self.step,
            "all steps of epoch {} were skipped: {ADVICE}",
            self.epoch + 1
        );
        let steps = (self.step - self.skipped).max(1) as f64;
        let losses = host_f64(&self.loss_sum)?;
        let diagnostics = host_f64(&self.diagnostic_sum)?;
        let mean = losses.iter().sum::<f64>() / losses.len() as f64 / steps;
        Ok((mean, diagnostics.into_iter().map(|value| value / steps).collect()))
    }

    /// Ends an epoch.
    pub fn finish_epoch(&mut self, row: EpochRow) {
        self.rows.push(row);
        self.epoch += 1;
        (self.step, self.skipped) = (0, 0);
        let _ = self.loss_sum.zero_();
        let _ = self.diagnostic_sum.zero_();
    }

    /// Returns the number of epochs since the best one; 0 if it is the last one. Epochs before there was a posterior do not count.
    pub fn epochs_without_gain(&self, by: Criterion) -> usize {
        let mut best = None;
        let mut since = 0;
        for row in self.rows.iter().filter(|row| row.has_posterior) {
            match row.criterion(by) {
                Some(value) if best.is_none_or(|best| by.gains(value, best)) => (best, since) = (Some(value), 0),
                _ => since += 1,
            }
        }
        since
    }

    /// Keeps the posterior if its value is the best so far.
    pub fn offer(&mut self, by: Criterion, value: f64, posterior: impl FnOnce() -> Posterior) {
        if self.best.as_ref().is_none_or(|best| by.gains(value, best.value)) {
            // The previous one is dropped first, so that two are never held.
            self.best = None;
            self.best = Some(Best { epoch: self.epoch + 1, value, posterior: posterior().snapshot() });
        }
    }

    /// Returns the seconds of training so far, over all interruptions.
    pub fn wall_seconds(&self) -> f64 {
        self.earlier_seconds + self.started.elapsed().as_secs_f64() * self.share
    }

    /// Returns the processor seconds of training so far, over all interruptions; `None` where the system does not tell, or a process
    /// before this one did not note them.
    pub fn processor_seconds(&self) -> Option<f64> {
        let since = processor_seconds()? - self.started_processor?;
        Some(self.earlier_processor + since * self.share)
    }

    /// Counts this share of the time from now on, where trainings are passed together: that of all of them is 1, and that of one which waits
    /// for the others is 0.
    pub fn share_time(&mut self, share: f64) {
        self.earlier_seconds = self.wall_seconds();
        self.started = Instant::now();
        if let Some(seconds) = self.processor_seconds() {
            self.earlier_processor = seconds;
            self.started_processor = processor_seconds();
        }
        self.share = share;
    }

    /// Returns the share of the present time that is this training's.
    pub fn share(&self) -> f64 {
        self.share
    }

    pub fn save(&self, state: &mut State) -> Result<()> {
        let counters = Counters {
            epoch: self.epoch,
            step: self.step,
            steps: self.steps,
            skipped: self.skipped,
            rows: self.rows.clone(),
            best: self.best.as_ref().map(|best| (best.epoch, best.value)),
            wall_seconds: self.wall_seconds(),
            processor_seconds: self.processor_seconds(),
        };
        state.put_text("progress", &serde_json::to_string(&counters).context("cannot write the progress")?);
        state.put("progress.loss_sum", &self.loss_sum);
        if self.diagnostic_sum.numel() > 0 {
            state.put("progress.diagnostic_sum", &self.diagnostic_sum);
        }
        if let Some(best) = &self.best {
            best.posterior.save(BEST, state);
        }
        Ok(())
    }

    pub fn load(&mut self, state: &State) -> Result<()> {
        let counters: Counters =
            serde_json::from_str(&state.text("progress")?).context("the resume file's progress is damaged")?;
        state.copy_into("progress.loss_sum", &mut self.loss_sum)?;
        if self.diagnostic_sum.numel() > 0 {
            state.copy_into("progress.diagnostic_sum", &mut self.diagnostic_sum)?;
        }
        let device = self.loss_sum.device();
        self.best = match counters.best {
            Some((epoch, value)) => Some(Best { epoch, value, posterior: Posterior::load(BEST, state, device)? }),
            None => None,
        };
        (self.epoch, self.step, self.steps) = (counters.epoch, counters.step, counters.steps);
        self.skipped = counters.skipped;
        (self.rows, self.earlier_seconds) = (counters.rows, counters.wall_seconds);
        match counters.processor_seconds {
            Some(seconds) => self.earlier_processor = seconds,
            None => self.started_processor = None,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;
    use crate::metrics::METRICS;

    /// Returns the row of an epoch with a value of the metric.
    fn row(by: Criterion, value: Option<f64>) -> EpochRow {
        EpochRow {
            epoch: 1,
            step: 1,
            rate_factor: 1.0,
            train_loss: 0.5,
            validation_nll: Some(0.5),
            validation_accuracy: None,
            validation_ece: None,
            validation_other: Some((by.column(), value)),
            diagnostics: Vec::new(),
            wall_seconds: 1.0,
            images_per_second: None,
            has_posterior: true,
        }
    }

    #[test]
    fn an_epoch_without_a_value_is_no_gain() {
        let by = Criterion(METRICS.iter().find(|metric| metric.key == "auroc_entropy_error").unwrap());
        let mut progress = Progress::new(1, 0, Device::Cpu);
        let mut since = |value| {
            progress.rows.push(row(by, value));
            progress.epochs_without_gain(by)
        };
        let found = [None, Some(0.6), None, Some(f64::NAN), Some(0.5), Some(0.7), None].map(&mut since);
        assert_eq!(found, [1, 0, 1, 2, 3, 0, 1]);
        let text = serde_json::to_string(&row(by, None)).unwrap();
        assert_eq!(serde_json::from_str::<EpochRow>(&text).unwrap(), row(by, None));
    }

    #[test]
    fn a_training_that_waits_for_others_takes_no_time() {
        let began = Instant::now();
        let mut progress = Progress::new(1, 0, Device::Cpu);
        progress.share_time(0.25);
        sleep(Duration::from_millis(20));
        progress.share_time(0.0);
        let (own, took) = (progress.wall_seconds(), began.elapsed().as_secs_f64());
        sleep(Duration::from_millis(20));
        assert_eq!(progress.wall_seconds(), own);
        // A quarter of 20 ms and more counts, and all of the time before.
        assert!(own >= 0.005 && own <= took - 0.015, "{own} of {took}");
    }
}
