//! A whole training run: from its first step, or from where it was interrupted, to the posterior on disk; and everything that
//! training needs, opened without training.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::batches::Batches;
use super::chunks::plan_alone;
use super::context::{Context, Material};
use super::meter::Meter;
use super::observers::Observers;
use super::particles::Particles;
use super::record::Finished;
use super::saver::Saver;
use super::shared::Objectives;
use super::validation::{Selector, Validator};
use super::{chunks, directions, history, prefix, record, spread};
use crate::base::tensor::{ROOM_TO_TRAIN, guarded};
use crate::base::tensor_file::State;
use crate::data::overlap::Seen;
use crate::experiment::Experiment;
use crate::machine::memory::ChunkSize;
use crate::methods::Origin;
use crate::posterior::Posterior;
use crate::run::RunFolder;
use crate::session::{Session, Settings};

/// A run that is to be trained.
pub struct Run<'a> {
    pub experiment: &'a Experiment,
    pub session: &'a Session,
    pub material: Material,
    pub folder: &'a RunFolder,
    /// The content of the resume file, if the run was interrupted.
    pub state: Option<State>,
}

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

/// The way in which a run ended.
pub enum Outcome {
    Finished(Box<Finished>),
    /// Stopped on request, or paused as asked, after this many steps, with everything that a resumed run needs on disk.
    Interrupted {
        steps: usize,
    },
}

/// Trains a run, continuing from its state if it was interrupted, and stores it in its folder.
///
/// # Errors
/// Fails if the config trains nothing, if a loss is not finite, if memory or disk runs out, or if the particles of
/// another run do not fit.
pub fn run(run: Run, watch: &Watch) -> Result<Outcome> {
    let Run { experiment, session, material, folder, state } = run;
    let context = Context::new(experiment, session, &material)?;
    let method = &context.training.method.spec;
    if let Some(post_hoc) = method.post_hoc() {
        post_hoc.plan(context.model(), context.subspace)?;
    }
    let Finished { record, posterior } = match method.origin() {
        Origin::Training => match train(&context, folder, state, watch)? {
            Outcome::Finished(trained) => *trained,
            interrupted => return Ok(interrupted),
        },
        Origin::Run(run) => {
            let adopted = record::adopted(run, experiment, session)?;
            watch.began.set(true);
            adopted
        }
        Origin::Checkpoint => {
            let theta = session.initial_theta(experiment.seed, context.particles())?;
            Finished { record: record::untrained(&context, &theta), posterior: Posterior::Points { theta } }
        }
    };
    (watch.trained)()?;
    if context.group().is_main() {
        record.write(folder)?;
    }
    let posterior = match method.post_hoc() {
        Some(post_hoc) => post_hoc.fit(posterior.theta(), &context.post_hoc())?,
        None => posterior,
    };
    watch.began.set(true);
    // The presence of the posterior marks the run as finished.
    let stored = session.stored(posterior, experiment)?;
    if context.group().is_main() {
        stored.write(&folder.posterior(), &folder.id())?;
    }
    Ok(Outcome::Finished(Box::new(Finished { record, posterior: stored.posterior })))
}

/// Trains until the last epoch, an early stop, a request to stop or a pause. The method's state, the best particles and the
/// cache are dropped at the end, before anything is fitted.
fn train(context: &Context, folder: &RunFolder, state: Option<State>, watch: &Watch) -> Result<Outcome> {
    context.check()?;
    let sharding = context.group().sharding(context.particles() as usize);
    // The cache comes first, since its memory is not free for activations; both come before theta, which may itself be too
    // large.
    let prefix = prefix::of(context, folder)?;
    let chunker = chunks::plan(context, sharding.share().rows.len())?;
    let theta = match &state {
        Some(_) => context.session.initial_theta(context.experiment.seed, context.particles())?,
        None => directions::start(context)?,
    };
    let mut particles = Particles::at_start(context, theta)?;
    let saver = Saver::new(context, folder, chunker.clone());
    if let Some(state) = state {
        // Once it is read, the resume file takes no memory.
        saver.resume(state, &mut particles)?;
    }
    watch.began.set(true);
    context.announce(&sharding);
    let selector = Selector::new(context.spec());
    let mut parts = Parts {
        batches: Batches::new(context, sharding.share(), prefix),
        objectives: Objectives::new(context, &sharding, chunker),
        validator: Validator::new(context),
        selector,
        saver,
        observers: Observers::of(context, folder, &particles.progress),
        meter: Meter::new(context, folder, &particles.progress),
    };
    let finished = train_epochs(context, &mut particles, &mut parts, watch)?;
    parts.meter.finish();
    parts.observers.finish();
    if !finished {
        return Ok(Outcome::Interrupted { steps: particles.progress.steps });
    }
    tracing::info!("{}", selector.choice(&particles.progress));
    particles.method.remarks()?.iter().for_each(|remark| tracing::info!("{remark}"));
    let record = record::trained(context, &particles, selector);
    Ok(Outcome::Finished(Box::new(Finished { record, posterior: selector.posterior(particles) })))
}

/// The parts behind the loop.
struct Parts<'a> {
    batches: Batches<'a>,
    objectives: Objectives<'a>,
    validator: Validator<'a>,
    selector: Selector,
    saver: Saver<'a>,
    observers: Observers,
    meter: Meter,
}

/// Trains the epochs that are left. Returns whether the last one is done; otherwise the resume file is written.
///
/// # Errors
/// Fails if a loss is not finite, if a batch cannot be read, or if the resume file cannot be written.
fn train_epochs(context: &Context, particles: &mut Particles, parts: &mut Parts, watch: &Watch) -> Result<bool> {
    let Parts { batches, objectives, validator, selector, saver, observers, meter } = parts;
    let (epochs, group, rates) = (context.spec().epochs, context.group(), context.rates());
    let stopping = || group.any(watch.stop.load(Ordering::Relaxed));
    while particles.progress.epoch < epochs && !selector.has_stalled(particles) {
        if watch.until_epoch.is_some_and(|until| particles.progress.epoch >= until) {
            return Ok(false);
        }
        meter.start_epoch();
        for batch in batches.left_in_epoch(&particles.progress) {
            let batch = batch?;
            let rate = rates.factor(particles.progress.steps);
            let step = guarded(&format!("step {}", particles.progress.steps + 1), ROOM_TO_TRAIN, || {
                let mut objective = objectives.on(&batch, particles.magnified());
                if particles.progress.steps == 0 {
                    spread::begin(context, particles, &mut objective)?;
                }
                particles.step(&mut objective, rate)
            })?;
            meter.stepped(step.as_ref(), &batch, &particles.progress, observers)?;
            let stop = stopping();
            if stop || saver.is_due() {
                meter.read(&particles.progress, observers)?;
                saver.save(particles)?;
            }
            if stop {
                return Ok(false);
            }
            meter.start_step();
        }
        meter.end_steps(&particles.progress, observers)?;
        particles.align(group)?;
        let row = validator.row(particles, meter.images_per_second())?;
        selector.offer(&row, particles);
        history::announce(&row, epochs, &particles.warnings(&row));
        observers.epoch(&row);
        particles.progress.finish_epoch(row);
        saver.write_history(&particles.progress)?;
        saver.save(particles)?;
        meter.end_epoch();
        if stopping() && particles.progress.epoch < epochs {
            return Ok(false);
        }
    }
    Ok(true)
}

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
    let seen = material.as_ref().map_or(&Seen::Others, |(_, seen)| seen);
    session.test_images(experiment, seen)?;
    let Some((material, _)) = material else { return Ok(None) };
    let cut = plan_alone(experiment, &session, &material)?;
    let (trained, held_out) = (material.holdout.train.len(), material.holdout.validation.len());
    Ok(Some(Opening { trained, held_out, cut }))
}
