//! The images of a run for training and validation.

use anyhow::{Result, bail};

use crate::data::Split;
use crate::data::batches::SampleSet;
use crate::data::order::Holdout;
use crate::experiment::{Experiment, Validation};
use crate::session::Session;

/// The training images, and the images for validation.
pub struct Material {
    pub train: SampleSet,
    /// The published validation split, if the config asks for it.
    published: Option<SampleSet>,
    pub holdout: Holdout,
    /// The fingerprint of the images: a resumed run must see the same ones.
    pub fingerprint: String,
}

impl Material {
    /// Reads the splits and holds out what the config asks for.
    ///
    /// # Errors
    /// Fails if images cannot be read, or if a held-out share leaves no image for training or for validation.
    pub fn read(experiment: &Experiment, session: &Session) -> Result<Material> {
        let (train, fingerprint) = session.training_images(experiment)?;
        let published = session.published_validation(experiment)?;
        let fingerprint = fingerprint + &published.as_ref().map(Split::fingerprint).unwrap_or_default();
        session.group.agree("the training data", &fingerprint)?;
        let workers = session.settings.workers;
        let published = published.map(|split| SampleSet::new(split, session.device, workers)).transpose()?;
        let holdout = hold_out(experiment, &train, published.as_ref())?;
        Ok(Material { train, published, holdout, fingerprint })
    }

    /// Creates material from given images; `holdout` selects the validation images.
    pub fn of(train: SampleSet, holdout: Holdout, fingerprint: String) -> Material {
        Material { train, published: None, holdout, fingerprint }
    }

    /// Returns the number of training batches of an epoch, the last of which may be smaller.
    pub fn batches(&self, batch_size: usize) -> usize {
        self.holdout.train.len().div_ceil(batch_size)
    }

    /// Returns the set of images that `holdout.validation` indexes.
    pub fn validation(&self) -> &SampleSet {
        self.published.as_ref().unwrap_or(&self.train)
    }
}

fn hold_out(experiment: &Experiment, images: &SampleSet, published: Option<&SampleSet>) -> Result<Holdout> {
    let validation = experiment.data.validation;
    let mut holdout = validation.holdout(experiment.seed, &images.split.labels);
    if let Some(published) = published {
        holdout.validation = (0..published.samples() as u32).collect();
    }
    let (key, count) = (&experiment.data.key, images.samples());
    if let Validation::HeldOut(share) = validation {
        if holdout.train.is_empty() {
            bail!("data.{key}.validation = {share}: leaves no image to train on");
        }
        if share > 0.0 && holdout.validation.is_empty() {
            bail!("data.{key}.validation = {share}: holds out no image of {count}: raise it");
        }
    }
    Ok(holdout)
}
