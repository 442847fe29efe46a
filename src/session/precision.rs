//! The number type in which a session computes.

use anyhow::{Context, Result};
use tch::{Device, Kind};

use crate::experiment::Experiment;
use crate::machine::Precision;
use crate::machine::device::compute_kind;
use crate::schema::Choice;

/// Returns the number type in which an experiment computes on a device; `asked` is the precision of the command line.
pub(super) fn kind_of(experiment: &Experiment, asked: Option<Precision>, device: Device) -> Result<Kind> {
    let needs_f32 = experiment.training.as_ref().is_some_and(|training| training.optimizer.spec.needs_f32());
    match asked.unwrap_or(configured(experiment)) {
        Precision::Auto if needs_f32 => Ok(Kind::Float),
        precision => {
            compute_kind(precision, device).context(if asked.is_some() { "--precision" } else { "train.precision" })
        }
    }
}

/// Returns the precision that a config asks for; f32 where it trains nothing.
fn configured(experiment: &Experiment) -> Precision {
    experiment.training.as_ref().map_or(Precision::F32, |training| training.train.precision)
}

/// Returns the precision in which to go on after a training: f32 where this machine does not compute in the number type of the
/// training, which may have been on another machine. The weights of a posterior are f32 in any case.
pub(super) fn after_training(experiment: &Experiment, asked: Option<Precision>, device: Device) -> Option<Precision> {
    let trained = configured(experiment);
    if asked.is_some() {
        return asked;
    }
    let why = compute_kind(trained, device).err()?;
    tracing::info!("computing in f32, since train.precision = \"{}\" does not serve here: {why:#}", trained.word());
    Some(Precision::F32)
}
