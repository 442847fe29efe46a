//! What a run leaves, and the content of `run.json`.

use tch::Tensor;

use super::context::Context;
use super::particles::Particles;
use super::selection::Selector;
use crate::machine::device::{LIBTORCH_VERSION, name, precision_name};
use crate::machine::memory;
use crate::posterior::Posterior;
use crate::run::Record;

/// What a run leaves.
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
        device: name(session.device),
        processes: session.world.size(),
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
        images_per_second: 0.0,
        // On the CPU this is the peak of the process, on a GPU that of its tensors. Both cover the frozen base, and the
        // plan starts from what is held there.
        peak_memory_bytes: memory::peak_bytes(session.device),
        planned_memory_bytes: Some(memory::planned_bytes()),
        selected_epoch: 0,
        self_check_difference: session.self_check_difference,
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
