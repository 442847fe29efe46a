//! A whole training run: assembled, resumed if it was interrupted, trained, fitted and stored.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use tch::{Device, Tensor};

use super::around;
use super::chunks::{Step, state_bytes};
use super::followers::Followers;
use super::gauge::Gauge;
use super::material::Material;
use super::prefix::{Plan, Prefix};
use super::progress::Progress;
use super::trainer::{Ending, Trainer};
use crate::base::small;
use crate::base::tensor_file::State;
use crate::experiment::{Experiment, PrefixCache, Training};
use crate::machine::memory::{self, Cut, Cutter};
use crate::methods::{Course, Method, Parts};
use crate::posterior::Posterior;
use crate::run::{Record, RunFolder};
use crate::session::Session;
use crate::subspace::Subspace;
use crate::subspace::geometry::Geometry;

/// The means by which a caller follows a run.
pub struct Watch<'a> {
    /// A flag that stops training after the current step and saves the resume file.
    pub stop: Arc<AtomicBool>,
    /// A function that is called when training is over and its results are on disk.
    pub trained: &'a dyn Fn() -> Result<()>,
    /// The epoch after which training pauses, with the resume file saved; `None` trains to the end.
    pub until_epoch: Option<usize>,
    /// Set when the first step begins.
    pub began: &'a Cell<bool>,
}

/// A run that is finished and stored.
pub struct Finished {
    pub record: Record,
    pub posterior: Posterior,
}

/// The way in which a run ended.
pub enum Outcome {
    Finished(Box<Finished>),
    /// Stopped on request, or paused as asked, after this many steps, with everything that a resumed run needs on disk.
    Interrupted {
        steps: usize,
    },
}

/// Trains a run on `material`, continuing from `state` if it was interrupted, and stores it in `folder`.
///
/// # Errors
/// Fails if the config trains nothing, if a loss is not finite, if memory or disk runs out, or if the particles of
/// another run do not fit.
pub fn run(
    experiment: &Experiment,
    session: &Session,
    material: Material,
    (folder, state): (&RunFolder, Option<State>),
    watch: &Watch,
) -> Result<Outcome> {
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    around::announce(training, session)?;
    let course = training.method.spec.course();
    let (record, particles) = match course {
        Course::Fit { run, .. } => {
            let adopted = around::adopt(run, experiment, session)?;
            watch.began.set(true);
            adopted
        }
        Course::FitCheckpoint(_) => {
            let theta = session.initial_theta(experiment.seed, training.method.spec.particles())?;
            (untrained(&theta, &material, session), Posterior::Points { theta })
        }
        Course::Train | Course::TrainThenFit(_) => {
            let trainer = started(experiment, session, &material, (folder, state), watch)?;
            match to_the_end(trainer, (experiment, training), session)? {
                Outcome::Finished(trained) => (trained.record, trained.posterior),
                interrupted => return Ok(interrupted),
            }
        }
    };
    (watch.trained)()?;
    if session.world.leads() {
        record.write(folder)?;
    }
    let posterior = match course.fitting() {
        Some(fitting) => around::fit(particles, fitting, (training, experiment.seed), session, &material)?,
        None => particles,
    };
    watch.began.set(true);
    let posterior = store(posterior, experiment, session, folder)?;
    Ok(Outcome::Finished(Box::new(Finished { record, posterior })))
}

/// Returns what trains, from its first step on or from a state.
fn started<'a>(
    experiment: &'a Experiment,
    session: &'a Session,
    material: &'a Material,
    (folder, state): (&'a RunFolder, Option<State>),
    watch: &Watch,
) -> Result<Trainer<'a>> {
    let mut trainer = assemble(experiment, session, material, (folder, watch))?;
    if let Some(state) = state {
        // Once it is read, the resume file takes no memory.
        trainer.go_on(&state)?;
    }
    watch.began.set(true);
    Ok(trainer)
}

/// Trains until the last epoch, an early stop or a pause. The method's state, the best particles and the cache are dropped
/// at the end, before anything is fitted.
fn to_the_end(
    mut trainer: Trainer,
    (experiment, training): (&Experiment, &Training),
    session: &Session,
) -> Result<Outcome> {
    announce((experiment, training), &trainer, session);
    let ending = trainer.train()?;
    trainer.bar.finish_and_clear();
    trainer.followers.finish();
    if ending == Ending::Interrupted {
        return Ok(Outcome::Interrupted { steps: trainer.progress.steps });
    }
    tracing::info!("{}", trainer.choice());
    trainer.method.remarks()?.iter().for_each(|remark| tracing::info!("{remark}"));
    let (record, posterior) = (record_of(&trainer, session), trainer.posterior());
    Ok(Outcome::Finished(Box::new(Finished { record, posterior })))
}

/// Assembles the state of the training loop.
fn assemble<'a>(
    experiment: &'a Experiment,
    session: &'a Session,
    material: &'a Material,
    (folder, watch): (&'a RunFolder, &Watch),
) -> Result<Trainer<'a>> {
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    let steps = checked_steps(training, session, material)?;
    let subspace = session.subspace()?;
    let particles = training.method.spec.particles();
    let (model, spec, world) = (&session.model, &training.train, &*session.world);
    let team = world.team(particles as usize);
    // The cache comes first, since its memory is not free for activations; both come before theta, which may itself be too
    // large.
    let prefix = prefix(training, session, material, folder)?;
    let cutter = plan_step(training, session, material, team.share().rows.len())?;
    let theta = session.initial_theta(experiment.seed, particles)?;
    let method = method(training, subspace, &theta, experiment.seed);
    let followers = if world.leads() { Followers::of(experiment, spec, folder, steps) } else { Followers::none() };
    Ok(Trainer {
        spec,
        seed: experiment.seed,
        model,
        subspace,
        progress: Progress::new(particles, method.diagnostics().len(), session.device),
        method,
        theta,
        material,
        folder,
        world,
        team,
        stop: watch.stop.clone(),
        until_epoch: watch.until_epoch,
        bar: crate::base::logging::bar_with_numbers("training"),
        gauge: Gauge::new(),
        followers,
        cutter,
        prefix,
    })
}

/// Returns the number of steps of the whole training, for which the method has been checked.
fn checked_steps(training: &Training, session: &Session, material: &Material) -> Result<usize> {
    let steps = training.train.epochs * material.batches(training.train.batch_size);
    training.method.spec.check_steps(steps)?;
    training.method.spec.check_classes(session.model.head.classes())?;
    Ok(steps)
}

/// Decides how many particles and images a step of this process alone would send through the network at once, without
/// training. It makes the checks that training makes before its first step.
///
/// # Errors
/// Fails if the config trains nothing, if the method cannot do with so few steps or classes, or if one particle and one image do not
/// fit in memory.
pub fn plan(experiment: &Experiment, session: &Session, material: &Material) -> Result<Cut> {
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    checked_steps(training, session, material)?;
    Ok(plan_step(training, session, material, training.method.spec.particles() as usize)?.cut())
}

/// Decides how much of a step this process, which computes the gradients of `own` particles, sends through the network at
/// once.
fn plan_step(training: &Training, session: &Session, material: &Material, own: usize) -> Result<Rc<Cutter>> {
    let (train, validation) = (material.holdout.train.len(), material.holdout.validation.len());
    let step = Step::of(training, &session.model, session.subspace()?.layout(), (train, validation));
    Step { own, ..step }.plan()
}

/// Builds the method at its start, `theta: [n, P]`.
fn method(training: &Training, subspace: &dyn Subspace, theta: &Tensor, seed: u64) -> Box<dyn Method> {
    training.method.spec.build(Parts {
        theta: theta.shallow_clone(),
        seed,
        optimizer: training.optimizer.spec.build(theta),
        geometry: Geometry::new(subspace.layout()),
        clip_norm: training.train.clip_norm,
    })
}

/// Computes the output of the stages below the first trained one, for the training images.
fn prefix(
    training: &Training,
    session: &Session,
    material: &Material,
    folder: &RunFolder,
) -> Result<Option<Rc<Prefix>>> {
    let (model, spec, images) = (&session.model, &training.train, &material.train);
    if images.is_augmented() {
        if !matches!(spec.prefix_cache, PrefixCache::Auto | PrefixCache::Off) {
            bail!("train.prefix_cache: data.*.augment changes the images in every epoch; leave one of them out");
        }
        return Ok(None);
    }
    let stage = model.network.first_stage(session.subspace()?.layout());
    if stage == 0 && matches!(spec.prefix_cache, PrefixCache::Memory | PrefixCache::Disk) {
        bail!("train.prefix_cache: the first block is trained, so there is nothing to keep; leave it out");
    }
    let layout = session.subspace()?.layout();
    let coming = if session.device == Device::Cpu { state_bytes(training, layout) } else { 0 };
    let plan = Plan {
        model,
        coming,
        stage,
        images,
        indices: &material.holdout.train,
        batch_size: spec.eval_batch_size,
        file: folder.prefix_cache(session.world.rank()),
    };
    Ok(Prefix::build(&plan, spec.prefix_cache)?.map(Rc::new))
}

fn announce((experiment, training): (&Experiment, &Training), trainer: &Trainer, session: &Session) {
    let (particles, parameters) = (trainer.theta.size()[0], trainer.theta.size()[1]);
    let holdout = &trainer.material.holdout;
    tracing::info!(
        "{} x {}: {} of {parameters} parameters ({} in all), {} training and {} validation images, {} on {}",
        training.subspace.key,
        training.method.key,
        small::particles(particles),
        particles * parameters,
        holdout.train.len(),
        holdout.validation.len(),
        crate::machine::device::precision_name(session.model.kind),
        crate::machine::device::name(session.device),
    );
    if trainer.world.size() > 1 {
        let share = trainer.team.share();
        tracing::info!(
            "{} processes of {} threads: {} particles and 1/{} of each batch in the first",
            trainer.world.size(),
            tch::get_num_threads(),
            share.rows.len(),
            share.members
        );
    }
    experiment.doubts(holdout.train.len()).iter().for_each(|doubt| tracing::warn!("{doubt}"));
}

/// Returns the content of `run.json` for particles `theta: [n, P]` that no step has moved.
fn untrained(theta: &Tensor, material: &Material, session: &Session) -> Record {
    let (particles, parameters) = (theta.size()[0], theta.size()[1]);
    Record {
        run: String::new(),
        bella_version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("BELLA_COMMIT").into(),
        libtorch_version: crate::machine::device::LIBTORCH_VERSION.into(),
        device: crate::machine::device::name(session.device),
        processes: session.world.size(),
        threads: tch::get_num_threads(),
        precision: crate::machine::device::precision_name(session.model.kind).into(),
        particles,
        parameters_per_particle: parameters,
        trainable_parameters: particles * parameters,
        train_samples: material.holdout.train.len(),
        validation_samples: material.holdout.validation.len(),
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

/// Returns the content of `run.json` for a run that has been trained.
fn record_of(trainer: &Trainer, session: &Session) -> Record {
    Record {
        run: String::new(),
        epochs: trainer.progress.epoch,
        steps: trainer.progress.steps,
        wall_seconds: trainer.wall_seconds(),
        images_per_second: mean_rate(trainer),
        selected_epoch: trainer.selected_epoch(),
        ..untrained(&trainer.theta, trainer.material, session)
    }
}

/// Returns the training speed (images of all particles per second), averaged over epochs. An epoch whose last step came
/// before an interruption has no speed of its own; if none has one, the speed of the whole training is returned.
fn mean_rate(trainer: &Trainer) -> f64 {
    let rates: Vec<f64> = trainer.progress.rows.iter().filter_map(|row| row.images_per_second).collect();
    if rates.is_empty() {
        let images = trainer.progress.epoch * trainer.material.holdout.train.len() * trainer.particles() as usize;
        return images as f64 / trainer.wall_seconds().max(1e-9);
    }
    rates.iter().sum::<f64>() / rates.len() as f64
}

/// Writes the posterior. Its presence marks the run as finished.
fn store(posterior: Posterior, experiment: &Experiment, session: &Session, folder: &RunFolder) -> Result<Posterior> {
    let stored = session.stored(posterior, experiment)?;
    if session.world.leads() {
        stored.write(&folder.posterior(), &folder.id())?;
    }
    Ok(stored.posterior)
}
