//! Everything that training needs, opened without training.

use anyhow::Result;

use super::chunks::plan_alone;
use super::material::Material;
use crate::experiment::Experiment;
use crate::machine::memory::ChunkSize;
use crate::session::{Session, Settings};

/// The work of a training step, known before training.
pub struct Opening {
    /// The number of images that are trained on.
    pub trained: usize,
    /// The number of images that are held out.
    pub held_out: usize,
    /// The particles and images that go through the network at once.
    pub cut: ChunkSize,
}

/// Opens everything that training or evaluation would open, in their order, and plans a training step; `None` if the config
/// trains nothing.
///
/// # Errors
/// Fails as training would before its first step.
pub fn open(experiment: &Experiment, settings: Settings) -> Result<Option<Opening>> {
    let device = settings.device.open()?;
    let session = Session::open(experiment, settings, device, experiment.data.dataset.classes()?)?;
    let material = experiment.training.as_ref().map(|_| Material::read(experiment, &session)).transpose()?;
    session.test_images(experiment)?;
    let Some(material) = material else { return Ok(None) };
    let cut = plan_alone(experiment, &session, &material)?;
    let (trained, held_out) = (material.holdout.train.len(), material.holdout.validation.len());
    Ok(Some(Opening { trained, held_out, cut }))
}
