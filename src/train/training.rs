//! A run in training: its particles, and the parts of the loop that are its own whether it trains alone or shares the passes of its
//! steps with others.

use std::rc::Rc;

use anyhow::Result;

use super::batches::TrainBatch;
use super::context::Context;
use super::meter::Meter;
use super::observers::Observers;
use super::particles::Particles;
use super::progress::EpochRow;
use super::record::{self, Finished};
use super::saver::Saver;
use super::validation::{Selector, Validator};
use super::{directions, spread};
use crate::base::tensor::{ROOM_TO_TRAIN, guarded};
use crate::base::tensor_file::State;
use crate::machine::memory::Chunker;
use crate::methods::Objective;
use crate::run::RunFolder;

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
    /// Takes a run before its first step, or where its resume file left it. A training that does not speak shows no progress.
    ///
    /// # Errors
    /// Fails if there is no memory for theta, if the start cannot be computed, or if the resume file is not that of this run.
    pub fn begin(
        context: Context<'a>,
        folder: &'a RunFolder,
        state: Option<State>,
        chunker: Rc<Chunker>,
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
            observers: Observers::of(&context, folder, &particles.progress),
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
        let step = guarded(&format!("step {}", particles.progress.steps + 1), ROOM_TO_TRAIN, || {
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
            self.saver.save(&self.particles)?;
        }
        Ok(())
    }

    /// Validates and saves an epoch whose steps are done.
    ///
    /// # Errors
    /// Fails if something is not finite, if predictions fail, or if a file cannot be written.
    pub fn end_epoch(&mut self) -> Result<()> {
        let Training { context, particles, validator, selector, saver, observers, meter, .. } = self;
        meter.end_steps(&particles.progress, observers)?;
        particles.align(context.group())?;
        let row = validator.row(particles, meter.images_per_second())?;
        selector.offer(&row, particles);
        announce(&self.whose, &row, context.spec().epochs, &particles.warnings(&row));
        observers.epoch(&row);
        particles.progress.finish_epoch(row);
        saver.write_history(&particles.progress)?;
        saver.save(particles)?;
        meter.end_epoch();
        Ok(())
    }

    /// Ends what shows and tells of the training.
    pub fn close(&mut self) {
        self.meter.finish();
        self.observers.finish();
    }

    /// Returns what the training leaves.
    ///
    /// # Errors
    /// Fails if reading from the device fails.
    pub fn finish(self) -> Result<Finished> {
        let Training { context, particles, selector, whose, .. } = self;
        tracing::info!("{whose}{}", selector.choice(&particles.progress));
        particles.method.remarks()?.iter().for_each(|remark| tracing::info!("{whose}{remark}"));
        let record = record::trained(&context, &particles, selector);
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
