//! The result of a run with its record, the content of `run.json`, and results that are taken over from another run.

use anyhow::{Context as _, Result, bail, ensure};
use tch::Tensor;

use super::context::Context;
use super::particles::Particles;
use super::validation::Selector;
use crate::experiment::{Experiment, load_config};
use crate::machine::device::{LIBTORCH_VERSION, name, precision_name};
use crate::machine::memory;
use crate::posterior::Posterior;
use crate::run::{LATEST, Record, RunFolder};
use crate::session::Session;

/// The record of a run and its posterior.
pub struct Finished {
    pub record: Record,
    pub posterior: Posterior,
}

/// Returns the record of particles `theta: [n, P]` that no step has moved.
pub(super) fn untrained(context: &Context, theta: &Tensor) -> Record {
    let (particles, parameters) = (theta.size()[0], theta.size()[1]);
    let (session, holdout) = (context.session, &context.material.holdout);
    Record {
        run: String::new(),
        bella_version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("BELLA_COMMIT").into(),
        libtorch_version: LIBTORCH_VERSION.into(),
        checkpoint_commit: context.experiment.checkpoint.path.commit().map(str::to_string),
        data_commit: context.experiment.data.commit(),
        data_contents: context.material.contents.clone(),
        device: name(session.device),
        processes: session.group.size(),
        threads: tch::get_num_threads(),
        precision: precision_name(session.model.kind).into(),
        particles,
        parameters_per_particle: parameters,
        trainable_parameters: particles * parameters,
        train_samples: holdout.train.len(),
        validation_samples: holdout.validation.len(),
        epochs: 0,
        steps: 0,
        wall_seconds: 0.0,
        processor_seconds: None,
        images_per_second: 0.0,
        // On the CPU this is the peak of the process, on a GPU that of its tensors. Both cover the frozen base, and the
        // plan starts from what is held there.
        peak_memory_bytes: memory::peak_bytes(session.device),
        planned_memory_bytes: Some(memory::planned_bytes()),
        selected_epoch: 0,
        self_check_difference: session.self_check_difference,
        overlap: context.material.overlap.clone(),
    }
}

/// Returns the record of particles that have been trained.
pub(super) fn trained(context: &Context, particles: &Particles, selector: Selector) -> Record {
    let Particles { theta, progress, .. } = particles;
    let wall_seconds = progress.rows.last().map_or(progress.earlier_seconds, |row| row.wall_seconds);
    Record {
        run: String::new(),
        epochs: progress.epoch,
        steps: progress.steps,
        wall_seconds,
        processor_seconds: progress.processor_seconds(),
        images_per_second: mean_rate(context, particles, wall_seconds),
        selected_epoch: selector.epoch(progress),
        ..untrained(context, theta)
    }
}

/// Returns the training speed (images of all particles per second), averaged over epochs. An epoch whose last step came
/// before an interruption has no speed of its own; if none has one, the speed of the whole training is returned.
fn mean_rate(context: &Context, Particles { progress, .. }: &Particles, wall_seconds: f64) -> f64 {
    let rates: Vec<f64> = progress.rows.iter().filter_map(|row| row.images_per_second).collect();
    if rates.is_empty() {
        let images = progress.epoch * context.material.holdout.train.len() * context.particles() as usize;
        return images as f64 / wall_seconds.max(1e-9);
    }
    rates.iter().sum::<f64>() / rates.len() as f64
}

/// Returns the record and the particles of the finished run `from`.
///
/// # Errors
/// Fails if the run does not exist or is not finished, if its seed, checkpoint, head, data or subspace differ from
/// those of this config, or if it kept Gaussians or draws instead of points.
pub(super) fn adopted(from: &str, experiment: &Experiment, session: &Session) -> Result<Finished> {
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    let method = &training.method.key;
    let key = format!("method.{method}.from = {from:?}");
    ensure!(from != LATEST, "{key}: the config would mean another run after the next training: name the run by its id");
    let run = RunFolder::find(&session.settings.out, Some(from)).with_context(|| key.clone())?;
    ensure!(run.is_finished(), "{key}: this run is not finished: continue it with `bella train`");
    let theirs = Experiment::read_to_evaluate(&load_config(&[run.config()], &[])?)?.resolved();
    let ours = experiment.resolved();
    for table in ["seed", "checkpoint", "head", "data", "subspace"] {
        ensure!(
            ours.get(table) == theirs.get(table),
            "{key}: its `{table}` is not this config's: fit Gaussians with the settings that the run was trained with ({})",
            run.config().display()
        );
    }
    run.check_data(&experiment.data).with_context(|| key.clone())?;
    let theta = match session.stored_by(&run, experiment)?.posterior {
        Posterior::Points { theta } | Posterior::Laplace { mode: theta, .. } => theta,
        Posterior::Gaussians { .. }
        | Posterior::LowRankGaussians { .. }
        | Posterior::BlockGaussians { .. }
        | Posterior::TiedGaussians { .. } => {
            bail!("{key}: the run's particles are Gaussians already")
        }
        Posterior::Dropout { .. } => {
            bail!("{key}: the run's particles predict with dropout, and are no modes without it")
        }
        Posterior::Bank { .. } => bail!("{key}: the run kept draws, which are no modes to fit Gaussians around"),
    };
    let particles = theta.size()[0];
    let asked = training.method.spec.particles();
    ensure!(
        particles == asked,
        "{key}: the run has {particles} particles: set method.{method}.particles = {particles}"
    );
    tracing::info!("particles: {}", run.path().display());
    Ok(Finished { record: Record::read(&run)?, posterior: Posterior::Points { theta } })
}
