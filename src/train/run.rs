//! A whole training run: from its first step, or from where it was interrupted, to the posterior on disk; and everything that
//! training needs, opened without training.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::batches::Batches;
use super::chunks::plan_alone;
use super::context::{Context, Material};
use super::record::Finished;
use super::shared::Objectives;
use super::training::Training;
use super::{chunks, prefix, record};
use crate::base::tensor_file::State;
use crate::data::labels::Labels;
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
    let finished = match method.origin() {
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
    Ok(Outcome::Finished(Box::new(store(&context, folder, finished, watch.began)?)))
}

/// Writes what training has left, with what is fitted around it. Sets `began` when only writing is left.
///
/// # Errors
/// Fails if the fit does, or if a file cannot be written.
pub(super) fn store(
    context: &Context,
    folder: &RunFolder,
    Finished { record, posterior }: Finished,
    began: &Cell<bool>,
) -> Result<Finished> {
    let leads = context.group().is_main();
    if leads {
        record.write(folder)?;
    }
    let posterior = match context.training.method.spec.post_hoc() {
        Some(post_hoc) => post_hoc.fit(posterior.theta(), &context.post_hoc())?,
        None => posterior,
    };
    began.set(true);
    // The presence of the posterior marks the run as finished.
    let stored = context.session.stored(posterior, context.experiment)?;
    if leads {
        stored.write(&folder.posterior(), &folder.id())?;
    }
    Ok(Finished { record, posterior: stored.posterior })
}

/// Trains until the last epoch, an early stop, a request to stop or a pause. The method's state, the best particles and the
/// cache are dropped at the end, before anything is fitted.
fn train(context: &Context, folder: &RunFolder, state: Option<State>, watch: &Watch) -> Result<Outcome> {
    context.check()?;
    let sharding = context.group().sharding(context.particles() as usize);
    // The cache comes first, since its memory is not free for activations; both come before theta, which may itself be too
    // large.
    let coming = chunks::coming(std::slice::from_ref(context));
    let prefix = prefix::of(context, folder, &context.material.holdout.train, coming)?;
    let chunker = chunks::plan(context, sharding.share().rows.len())?;
    let mut training = Training::begin(*context, folder, state, chunker.clone(), true)?;
    watch.began.set(true);
    context.announce(&sharding);
    let batches = Batches::new(context, sharding.share(), prefix.map(Rc::new));
    let objectives = Objectives::new(context, &sharding, chunker);
    let finished = train_epochs(&mut training, &batches, &objectives, watch)?;
    training.close();
    if !finished {
        return Ok(Outcome::Interrupted { steps: training.particles.progress.steps });
    }
    Ok(Outcome::Finished(Box::new(training.finish()?)))
}

/// Trains the epochs that are left. Returns whether the last one is done; otherwise the resume file is written.
///
/// # Errors
/// Fails if a loss is not finite, if a batch cannot be read, or if the resume file cannot be written.
fn train_epochs(training: &mut Training, batches: &Batches, objectives: &Objectives, watch: &Watch) -> Result<bool> {
    let group = training.context.group();
    let stopping = || group.any(watch.stop.load(Ordering::Relaxed));
    while !training.is_over() {
        if training.pauses(watch.until_epoch) {
            return Ok(false);
        }
        training.start_epoch();
        for batch in batches.left_in_epoch(&training.particles.progress) {
            let batch = batch?;
            training.step(&batch, &mut objectives.on(&batch, training.particles.magnified()))?;
            let stop = stopping();
            training.save_within_epoch(stop)?;
            if stop {
                return Ok(false);
            }
            training.start_step();
        }
        training.end_epoch()?;
        if stopping() && training.particles.progress.epoch < training.context.spec().epochs {
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
    let session = Session::open(experiment, settings, device, Labels::of(&*experiment.data.dataset)?)?;
    let material = experiment.training.as_ref().map(|_| Material::read(experiment, &session)).transpose()?;
    let seen = material.as_ref().map_or(&Seen::Others, |(_, seen)| seen);
    session.test_images(experiment, seen)?;
    let Some((material, _)) = material else { return Ok(None) };
    let cut = plan_alone(experiment, &session, &material)?;
    let (trained, held_out) = (material.holdout.train.len(), material.holdout.validation.len());
    Ok(Some(Opening { trained, held_out, cut }))
}
