//! The progress meter of training: it reads the losses of the last steps now and then, measures the speed, and shows both.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use tch::{Device, Tensor};

use super::batches::TrainBatch;
use super::context::{Context, Rates};
use super::observers::Observers;
use super::progress::{ADVICE, Progress};
use super::reading::{Left, Reading, Timing};
use crate::base::tensor::host_f64;
use crate::machine::memory;
use crate::methods::Step;
use crate::run::RunFolder;

/// The number of steps between two reads of the losses, on a device where a read costs a synchronisation.
const READ_EVERY: usize = 20;

/// The seconds between two lines of progress if there is no progress bar.
const LINE_EVERY_SECONDS: u64 = 30;

/// The time between two notes for `bella watch`.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// The characters of such a line behind the number of the step.
const LINE: usize = 100;

/// The losses that nobody has read yet, and the times of this process's share of the work.
pub(super) struct Meter {
    rates: Rates,
    epochs: usize,
    steps_per_epoch: usize,
    device: Device,
    particles: usize,
    bar: ProgressBar,
    /// Whether lines say how far the training is where there is no progress bar.
    speaks: bool,
    /// The losses of the last steps, `[n]` each.
    unread: Vec<Tensor>,
    /// The number of the last of these steps.
    last: usize,
    timing: Timing,
    /// The time of the last line of progress if there is no progress bar.
    told: Instant,
    notes: Notes,
    /// The start of the current step, or of the end of an epoch.
    began: Instant,
    epoch: Speed,
}

/// The steps of the current epoch since this process started. Each image counts once for each particle.
#[derive(Default)]
struct Speed {
    images: u64,
    steps: usize,
    seconds: f64,
}

impl Meter {
    /// Creates the meter of a training; one that does not speak shows nothing.
    pub fn new(context: &Context, folder: &RunFolder, progress: &Progress, speaks: bool) -> Meter {
        let shown = || crate::base::logging::bar_with_numbers(context.steps(), "training");
        let bar = if speaks { shown() } else { ProgressBar::hidden() };
        bar.set_position(progress.steps as u64);
        bar.set_message("the first steps");
        Meter {
            rates: context.rates(),
            epochs: context.spec().epochs,
            steps_per_epoch: context.steps_per_epoch(),
            device: context.session.device,
            particles: context.particles() as usize,
            bar,
            speaks,
            unread: Vec::new(),
            last: 0,
            timing: Timing::default(),
            told: Instant::now(),
            notes: Notes::new(folder, context),
            began: Instant::now(),
            epoch: Speed::default(),
        }
    }

    pub fn start_epoch(&mut self) {
        self.epoch = Speed::default();
        self.notes.start_epoch();
        self.start_step();
    }

    /// Starts the time of a step. Saving and validation do not count.
    pub fn start_step(&mut self) {
        self.began = Instant::now();
    }

    /// Notes a step that is done, or skipped.
    ///
    /// # Errors
    /// Fails if a loss that is read is not finite.
    pub fn stepped(
        &mut self,
        step: Option<&Step>,
        batch: &TrainBatch,
        progress: &Progress,
        observers: &mut Observers,
    ) -> Result<()> {
        match step {
            Some(step) => {
                self.unread.push(step.losses.shallow_clone());
                self.last = progress.steps;
            }
            // The unread losses are of steps that follow each other.
            None => self.read(progress, observers)?,
        }
        let every = if self.device == Device::Cpu { 1 } else { READ_EVERY };
        if self.unread.len() >= every {
            self.read(progress, observers)?;
        }
        self.bar.inc(1);
        self.epoch.seconds += self.began.elapsed().as_secs_f64();
        self.epoch.images += batch.size as u64 * self.particles as u64;
        self.epoch.steps += 1;
        Ok(())
    }

    /// Reads the losses of the last steps, shows them and hands them to the observers.
    ///
    /// # Errors
    /// Fails at the first loss that is not finite.
    pub fn read(&mut self, progress: &Progress, observers: &mut Observers) -> Result<()> {
        if self.unread.is_empty() {
            return Ok(());
        }
        let means = self.means(progress)?;
        observers.steps(self.last + 1 - means.len(), &means, self.rates);
        let loss = means[means.len() - 1];
        self.notes.add(progress.step, self.steps_per_epoch, loss);
        let reading = self.reading(loss, progress);
        self.bar.set_message(reading.line(crate::base::logging::width()));
        if self.speaks && self.bar.is_hidden() && self.told.elapsed().as_secs() >= LINE_EVERY_SECONDS {
            tracing::info!("step {}/{}  {}", progress.steps, self.rates.steps, reading.line(LINE));
            self.told = Instant::now();
        }
        Ok(())
    }

    /// Ends the steps of an epoch, after which it is validated and saved.
    ///
    /// # Errors
    /// Fails if a loss is not finite.
    pub fn end_steps(&mut self, progress: &Progress, observers: &mut Observers) -> Result<()> {
        self.read(progress, observers)?;
        self.began = Instant::now();
        Ok(())
    }

    /// Notes that an epoch is validated and saved.
    pub fn end_epoch(&mut self) {
        self.timing.between_epochs(self.began.elapsed());
    }

    /// Removes the progress bar, and the notes for other processes.
    pub fn finish(&self) {
        self.notes.remove();
        self.bar.finish_and_clear();
    }

    /// Returns the images per second of this training's share of the time in the current epoch, once a step has been timed.
    pub fn images_per_second(&self, progress: &Progress) -> Option<f64> {
        let Speed { images, seconds, .. } = self.epoch;
        (images > 0).then(|| images as f64 / (seconds * progress.share()).max(1e-9))
    }

    /// Returns the mean losses over particles of the last steps, and forgets these losses.
    fn means(&mut self, progress: &Progress) -> Result<Vec<f64>> {
        let count = self.unread.len();
        let values = host_f64(&Tensor::stack(&self.unread, 0))?;
        self.unread.clear();
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let step = self.last - count + at / self.particles + 1;
            bail!(
                "the loss of particle {} is {} in step {step} (epoch {}): {ADVICE}",
                at % self.particles,
                values[at],
                progress.epoch + 1
            );
        }
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / self.particles as f64;
        Ok(values.chunks(self.particles).map(mean).collect())
    }

    /// Returns the reading of this moment, with the mean loss of the last step.
    fn reading(&mut self, loss: f64, progress: &Progress) -> Reading {
        self.timing.steps(self.epoch.steps, self.epoch.seconds);
        let left = Left {
            steps: self.steps_per_epoch - progress.step,
            epochs: self.epochs - progress.epoch - 1,
            steps_per_epoch: self.steps_per_epoch,
        };
        let (last, device) = (progress.rows.last(), self.device);
        Reading {
            loss,
            validation: last.and_then(|row| Some((row.validation_nll?, row.validation_accuracy?))),
            // An epoch's first step is not timed, so after it there is no rate yet.
            images_per_second: self.images_per_second(progress),
            left: self.timing.left(left),
            held: self.timing.held(|| memory::held_bytes(device)),
            is_gpu: device != Device::Cpu,
        }
    }
}

/// The losses of the steps of the current epoch in a file, by which `bella watch` follows a run before an epoch is finished.
/// Nothing depends on it, so a file that cannot be written does not end training.
struct Notes {
    /// `None` in all processes but the first.
    path: Option<PathBuf>,
    file: Option<File>,
    last: Option<Instant>,
}

impl Notes {
    fn new(folder: &RunFolder, context: &Context) -> Notes {
        Notes { path: context.group().is_main().then(|| folder.notes()), file: None, last: None }
    }

    /// Empties the file.
    fn start_epoch(&mut self) {
        self.file = self.path.as_ref().and_then(|path| File::create(path).ok());
    }

    /// Adds the loss of a step of an epoch with `of` steps as a line, unless the last note is too young.
    fn add(&mut self, step: usize, of: usize, loss: f64) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= NOTE_EVERY);
        if let Some(file) = self.file.as_mut().filter(|_| is_due) {
            let _ = file.write_all(format!("{step} {of} {loss}\n").as_bytes());
            self.last = Some(Instant::now());
        }
    }

    fn remove(&self) {
        let _ = self.path.as_ref().map(std::fs::remove_file);
    }
}
