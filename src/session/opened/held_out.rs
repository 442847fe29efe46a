//! The training images that a run held out, for evaluation or for fitting temperatures.

use anyhow::{Context, Result};

use super::Opened;
use crate::data::batches::{SampleSet, TestImages};
use crate::data::{Fingerprint, Split, SplitName};
use crate::experiment::{Experiment, Validation, load_config};

/// The training images that a run held out.
struct HeldOut {
    /// The images, with the labels of their publisher.
    split: Split,
    /// The labels that training saw, some of them replaced by `label_noise`, `[N]`.
    trained: Vec<u32>,
}

impl Opened {
    /// Returns the images of a split. `val` is the training images that the run held out, if it held some out and no
    /// other data are asked for. They have the labels of their publisher, since a result measures the model and not the
    /// label noise.
    ///
    /// # Errors
    /// Fails if the data set has no such split.
    pub fn split(&self, name: SplitName) -> Result<Split> {
        if name != SplitName::Val {
            return self.session.load(&self.experiment, name);
        }
        let data = &self.experiment.data;
        if self.own_data
            && let Some(held) = self.held_out(&self.experiment)?
        {
            let replaced = if held.split.labels == held.trained { "" } else { ", not those that label_noise replaced" };
            tracing::info!(
                "val: the {} training images held out by data.{}.validation, with their published labels{replaced}",
                held.split.len(),
                data.key
            );
            return Ok(held.split);
        }
        self.session.load(&self.experiment, name).with_context(|| match (self.own_data, data.validation.is_none()) {
            (true, true) => {
                format!("--split val: the run held no training images out (data.{}.validation = 0)", data.key)
            }
            (true, false) => "--split val".to_string(),
            (false, _) => {
                "--split val: held-out images are those of the run's own data: leave --data and --set data.* \
                           out, or name a data set with a val split"
                    .to_string()
            }
        })
    }

    /// Returns the training images that an experiment holds out, if it holds out any.
    fn held_out(&self, experiment: &Experiment) -> Result<Option<HeldOut>> {
        if !matches!(experiment.data.validation, Validation::HeldOut(share) if share > 0.0) {
            return Ok(None);
        }
        let all = self.session.load_published(experiment, SplitName::Train)?;
        let mut labels = all.labels.clone();
        self.session.replace_labels(experiment, &all.name, &mut labels);
        // Training selected the images by the labels that it saw.
        let held = experiment.data.validation.holdout(experiment.seed, &labels).validation;
        let trained = held.iter().map(|&image| labels[image as usize]).collect();
        Ok(Some(HeldOut { split: all.select(&held), trained }))
    }

    /// Returns the training images that the run held out, with the labels that it saw, or else a published validation
    /// split. Of a checkpoint without training, it is the images that its config holds out.
    ///
    /// # Errors
    /// Fails if there is neither.
    pub fn validation(&self) -> Result<TestImages> {
        let stored;
        // This is the run's own data: `--data` names another test set, not another training set.
        let experiment = match &self.trained {
            Some(_) => {
                stored = Experiment::read_to_evaluate(&load_config(&[self.run.config()], &self.roots)?)?;
                &stored
            }
            None => &self.experiment,
        };
        let (device, workers) = (self.session.device, self.session.settings.workers);
        if let Some(HeldOut { split, trained }) = self.held_out(experiment)? {
            // The images are the same ones whatever label noise made of their labels.
            let fingerprint = Fingerprint::of(&split)?;
            let set = SampleSet::new(Split { labels: trained, ..split }, device, workers)?;
            return Ok(TestImages { set, fingerprint });
        }
        let split = self.session.load(experiment, SplitName::Val).context(
            "nothing to calibrate on: no training images are held out (data.*.validation = 0) and the data set has no val \
             split",
        )?;
        TestImages::new(split, device, workers)
    }

    /// Returns whether the images of a split are among the calibration images, or among those that were trained on.
    pub fn is_of_training(&self, split: SplitName) -> bool {
        self.own_data && split != SplitName::Test
    }
}
