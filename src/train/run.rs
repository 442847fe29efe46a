//! A whole training run: from its first step, or from where it was interrupted, to the posterior on disk. What is a run's own, whether
//! it trains alone or shares the passes of its steps with others, is a [`Training`].

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::batches::{Batches, Objectives, TrainBatch};
use super::context::{Context, Material};
use super::meter::Meter;
use super::observers::Observers;
use super::particles::Particles;
use super::progress::EpochRow;
use super::saver::{Finished, Saver};
use super::validation::{Selector, Validator};
use super::{chunks, directions, prefix, saver, spread};
use crate::base::tensor::guarded;
use crate::base::tensor_file::State;
use crate::experiment::Experiment;
use crate::machine::memory::Chunker;
use crate::methods::{Objective, Origin};
use crate::posterior::Posterior;
use crate::run::RunFolder;
use crate::session::Session;

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
            let adopted = saver::adopted(run, experiment, session)?;
            watch.began.set(true);
            adopted
        }
        Origin::Checkpoint => {
            let theta = session.initial_theta(experiment.seed, context.particles())?;
            Finished { record: saver::untrained(&context, &theta), posterior: Posterior::Points { theta } }
        }
    };
    (watch.trained)()?;
    Ok(Outcome::Finished(Box::new(store(&context, folder, finished, watch.began)?)))
}

/// Writes the result of training, with the posterior that is fitted around it. Sets `began` when only writing is left.
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
    let mut training = Training::begin(*context, folder, state, chunker.clone(), watch, true)?;
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

/// A run, and how far it is trained.
pub(super) struct Training<'a> {
    pub context: Context<'a>,
    pub folder: &'a RunFolder,
    pub particles: Particles,
    /// The start of the lines of epochs, which says whose they are where several runs train.
    whose: String,
    validator: Validator<'a>,
    selector: Selector,
    saver: Saver<'a>,
    observers: Observers,
    meter: Meter,
}

impl<'a> Training<'a> {
    /// Takes a run before its first step, or where its resume file left it. A training that does not speak shows no progress, and
    /// what follows it (`train.on_epoch`) ends soon after a stop that `watch` is asked for.
    ///
    /// # Errors
    /// Fails if there is no memory for theta, if the start cannot be computed, or if the resume file is not that of this run.
    pub fn begin(
        context: Context<'a>,
        folder: &'a RunFolder,
        state: Option<State>,
        chunker: Rc<Chunker>,
        watch: &Watch,
        speaks: bool,
    ) -> Result<Training<'a>> {
        let theta = match &state {
            Some(_) => context.session.initial_theta(context.experiment.seed, context.particles())?,
            None => directions::start(&context)?,
        };
        let mut particles = Particles::at_start(&context, theta)?;
        let saver = Saver::new(&context, folder, chunker);
        if let Some(state) = state {
            // Once it is read, the resume file takes no memory.
            saver.resume(state, &mut particles)?;
        }
        Ok(Training {
            whose: if context.is_packed { format!("{}: ", folder.id()) } else { String::new() },
            validator: Validator::new(&context),
            selector: Selector::new(context.spec()),
            saver,
            observers: Observers::of(&context, folder, &particles.progress, &watch.stop),
            meter: Meter::new(&context, folder, &particles.progress, speaks),
            particles,
            folder,
            context,
        })
    }

    /// Returns whether no epoch is left, or training ends early.
    pub fn is_over(&self) -> bool {
        self.particles.progress.epoch >= self.context.spec().epochs || self.selector.has_stalled(&self.particles)
    }

    /// Returns whether an epoch has been reached before which training pauses.
    pub fn pauses(&self, until_epoch: Option<usize>) -> bool {
        until_epoch.is_some_and(|until| self.particles.progress.epoch >= until)
    }

    pub fn start_epoch(&mut self) {
        self.meter.start_epoch();
    }

    /// Starts the time of a step.
    pub fn start_step(&mut self) {
        self.meter.start_step();
    }

    /// Takes a step on a batch.
    ///
    /// # Errors
    /// Fails if the method does, or if a loss is not finite.
    pub fn step(&mut self, batch: &TrainBatch, objective: &mut dyn Objective) -> Result<()> {
        let Training { context, particles, observers, meter, .. } = self;
        let rate = context.rates().factor(particles.progress.steps);
        let step = guarded(&format!("step {}", particles.progress.steps + 1), context.training.room(), || {
            if particles.progress.steps == 0 {
                spread::begin(context, particles, objective)?;
            }
            particles.step(objective, rate)
        })?;
        meter.stepped(step.as_ref(), batch, &particles.progress, observers)
    }

    /// Writes the resume file within an epoch if that is due, or if training stops.
    ///
    /// # Errors
    /// Fails if something is not finite, or if the file cannot be written.
    pub fn save_within_epoch(&mut self, stops: bool) -> Result<()> {
        if stops || self.saver.is_due() {
            self.meter.read(&self.particles.progress, &mut self.observers)?;
            self.saver.save(&mut self.particles)?;
        }
        Ok(())
    }

    /// Validates and saves an epoch whose steps are done. The command of the user comes last, since it may be slow.
    ///
    /// # Errors
    /// Fails if something is not finite, if predictions fail, or if a file cannot be written.
    pub fn end_epoch(&mut self) -> Result<()> {
        let Training { context, particles, validator, selector, saver, observers, meter, .. } = self;
        meter.end_steps(&particles.progress, observers)?;
        particles.align(context.group())?;
        let row = validator.row(particles, meter.images_per_second(&particles.progress))?;
        selector.offer(&row, particles);
        let warnings: Vec<String> = particles.warnings(&row).into_iter().chain(selector.lacks(&row)).collect();
        announce(&self.whose, &row, context.spec().epochs, &warnings);
        observers.log_epoch(&row);
        particles.progress.finish_epoch(row.clone());
        saver.write_history(&particles.progress)?;
        saver.save(particles)?;
        observers.tell_epoch(&row);
        meter.end_epoch();
        Ok(())
    }

    /// Ends the progress meter and the observers.
    pub fn close(&mut self) {
        self.meter.finish();
        self.observers.finish();
    }

    /// Returns the result of the training.
    ///
    /// # Errors
    /// Fails if reading from the device fails, or if no epoch has a value of the metric by which they are compared.
    pub fn finish(self) -> Result<Finished> {
        let Training { context, particles, selector, whose, .. } = self;
        selector.check(&particles.progress)?;
        tracing::info!("{whose}{}", selector.choice(&particles.progress));
        particles.method.remarks()?.iter().for_each(|remark| tracing::info!("{whose}{remark}"));
        let record = saver::trained(&context, &particles, selector);
        Ok(Finished { record, posterior: selector.posterior(particles) })
    }
}

/// Logs an epoch and the method's warnings about it. Every line begins with `whose`.
fn announce(whose: &str, row: &EpochRow, epochs: usize, warnings: &[String]) {
    warnings.iter().for_each(|warning| tracing::warn!("{whose}epoch {}: {warning}", row.epoch));
    tracing::info!("{whose}{}", describe(row, epochs));
    describe_diagnostics(row).iter().for_each(|line| tracing::debug!("{whose}{line}"));
}

/// Returns the line for the terminal.
fn describe(row: &EpochRow, epochs: usize) -> String {
    let mut text = format!("epoch {}/{epochs}  loss {:.4}", row.epoch, row.train_loss);
    if let Some(nll) = row.validation_nll {
        text += &format!("  validation NLL {nll:.4}");
    }
    if let Some(accuracy) = row.validation_accuracy {
        text += &format!(", accuracy {:.2} %", accuracy * 100.0);
    }
    text + &row.images_per_second.map_or(String::new(), |rate| format!("  {rate:.0} images/s"))
}

/// Returns the line of the method's diagnostics, for the run's log; `None` if it has none.
fn describe_diagnostics(row: &EpochRow) -> Option<String> {
    let values: Vec<String> = row.diagnostics.iter().map(|(name, value)| format!("{name} {value:.3e}")).collect();
    (!values.is_empty()).then(|| format!("epoch {}: {}", row.epoch, values.join("  ")))
}
