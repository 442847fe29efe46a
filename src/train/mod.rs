//! The training loop: batches, schedule, validation and resume files. It names no method, model or data set.

mod around;
pub mod chunks;
mod epoch_end;
mod feed;
mod history;
mod material;
mod mixing;
mod objective;
pub mod prefix;
pub mod progress;
mod recompute;
mod resume;
mod run;
mod schedule;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use tch::Tensor;

use crate::base::tensor::{ROOM_TO_TRAIN, guarded, host_f64};
use crate::data::order::epoch_order;
use crate::experiment::{Batches, Selection, TrainSpec};
use crate::machine::memory::Cutter;
use crate::machine::parallel::{Team, World};
use crate::methods::{Method, Step};
use crate::model::Model;
use crate::posterior::Posterior;
use crate::run::RunFolder;
use crate::subspace::Subspace;

use feed::Feed;
pub use material::Material;
pub use objective::{Cut, Likelihood, Shared};
use prefix::Prefix;
use progress::Progress;
pub use resume::{read_resume_file, stored_threads};
pub use run::{Finished, Outcome, Watch, run};

/// The number of steps between checks of the losses on a device where each check costs a synchronisation.
const LOOK_EVERY: usize = 20;

/// The number of seconds between plain lines if there is no progress bar.
const TELL_EVERY_SECONDS: u64 = 30;

/// The state of the training loop.
struct Trainer<'a> {
    spec: &'a TrainSpec,
    seed: u64,
    model: &'a Model,
    subspace: &'a dyn Subspace,
    method: Box<dyn Method>,
    /// The particles, `[n, P]` in f32.
    theta: Tensor,
    material: &'a Material,
    folder: &'a RunFolder,
    world: &'a World,
    team: Team<'a>,
    /// A flag that the caller sets to stop after the current step.
    stop: Arc<AtomicBool>,
    progress: Progress,
    bar: ProgressBar,
    /// The number of particles and images that go through the network at once.
    cutter: Rc<Cutter>,
    /// The cached input of the first trained stage, if there is a cache.
    prefix: Option<Rc<Prefix>>,
}

/// Advice printed when a loss is not finite.
const ADVICE: &str = "lower optimizer.*.lr, raise train.warmup_steps, set train.clip_norm = 1.0, or use train.precision = \
                      \"f32\"; the resume file holds finite particles only";

/// The way in which the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Finished,
    /// Stopped on request, with a resume file.
    Interrupted,
}

/// Times and counts since this process started.
struct Clock {
    started: Instant,
    saved: Instant,
    /// The time of the last plain line, if there is no progress bar.
    told: Instant,
    /// The images of the current epoch since this process started, counted for each particle, and the seconds spent on
    /// them.
    images: u64,
    seconds: f64,
}

impl Clock {
    /// Returns the images per second in the current epoch, once a step has been timed.
    fn rate(&self) -> Option<f64> {
        (self.images > 0).then(|| self.images as f64 / self.seconds.max(1e-9))
    }
}

impl Trainer<'_> {
    /// Trains to the end, or until a stop is requested.
    ///
    /// # Errors
    /// Fails if a loss is not finite, if a batch cannot be read, or if the resume file cannot be written.
    fn train(&mut self) -> Result<Ending> {
        let mut clock =
            Clock { started: Instant::now(), saved: Instant::now(), told: Instant::now(), images: 0, seconds: 0.0 };
        self.bar.set_length((self.spec.epochs * self.steps_per_epoch()) as u64);
        self.bar.set_position(self.progress.steps as u64);
        self.bar.reset_eta();
        while self.progress.epoch < self.spec.epochs {
            if self.epoch(&mut clock)? == Ending::Interrupted {
                return Ok(Ending::Interrupted);
            }
            self.close_epoch(&clock)?;
            self.save(&mut clock)?;
            if self.stopping() && self.progress.epoch < self.spec.epochs {
                return Ok(Ending::Interrupted);
            }
        }
        Ok(Ending::Finished)
    }

    /// Returns the epoch of the selected posterior.
    fn selected_epoch(&self) -> usize {
        match (&self.progress.best, self.spec.select) {
            (Some(best), Selection::Best) => best.epoch,
            _ => self.progress.epoch,
        }
    }

    /// Returns the selected posterior. Afterwards the best one is no longer kept.
    fn posterior(&mut self) -> Posterior {
        match (self.progress.best.take(), self.spec.select) {
            (Some(best), Selection::Best) => best.posterior,
            _ => self.method.posterior(&self.theta),
        }
    }

    /// Returns the wall seconds of training, over all interruptions.
    fn wall_seconds(&self) -> f64 {
        self.progress.rows.last().map_or(self.progress.earlier_seconds, |row| row.wall_seconds)
    }

    fn particles(&self) -> i64 {
        self.theta.size()[0]
    }

    /// Returns the number of steps in one epoch.
    fn steps_per_epoch(&self) -> usize {
        self.material.holdout.train.len().div_ceil(self.spec.batch_size)
    }

    /// Returns whether any process was asked to stop. All processes get the same answer.
    fn stopping(&self) -> bool {
        self.world.any(self.stop.load(Ordering::Relaxed))
    }

    fn cut(&self) -> Cut {
        Cut { particle_chunk: 0, accumulate: self.spec.accumulate.parts(), recompute: self.spec.recompute }
    }

    /// Returns the particles whose data orders this process follows; the first one's order is used by all if it is
    /// shared.
    fn orders(&self) -> Range<usize> {
        match self.spec.batches {
            Batches::Independent => self.team.share().rows.clone(),
            Batches::Shared => 0..1,
        }
    }

    /// Returns the positions in an epoch's order that make up the batch of a step.
    fn batch_range(&self, step: usize) -> Range<usize> {
        step * self.spec.batch_size..((step + 1) * self.spec.batch_size).min(self.material.holdout.train.len())
    }

    /// Returns this process's share of the remaining batches of the current epoch. Each batch holds the samples of all
    /// its orders, one order after the other.
    fn plan(&self) -> Vec<Vec<u32>> {
        let (share, train) = (self.team.share(), &self.material.holdout.train);
        let permutations: Vec<Vec<u32>> = self
            .orders()
            .map(|particle| epoch_order(self.seed, self.progress.epoch as u64, particle as u64, train.len()))
            .collect();
        let batch = |step: usize| {
            let range = self.batch_range(step);
            let samples: Vec<usize> = self.cut().samples(share, range.len()).into_iter().flatten().collect();
            let of = |order: &Vec<u32>| -> Vec<u32> {
                samples.iter().map(|sample| train[order[range.start + sample] as usize]).collect()
            };
            permutations.iter().flat_map(of).collect()
        };
        (self.progress.step..self.steps_per_epoch()).map(batch).collect()
    }

    fn epoch(&mut self, clock: &mut Clock) -> Result<Ending> {
        let plan = self.plan();
        let mut unseen: Vec<Tensor> = Vec::new();
        let every = if self.theta.device() == tch::Device::Cpu { 1 } else { LOOK_EVERY };
        let (images, prefix) = (&self.material.train, self.prefix.clone());
        let feeds: Box<dyn Iterator<Item = Result<Feed>>> = match &prefix {
            Some(prefix) => Box::new(plan.into_iter().map(|indices| {
                let labels = images.labels(&indices);
                Ok(Feed::Entering(prefix.values(&indices)?, labels))
            })),
            None => {
                let batches = images.training_batches(plan, self.progress.epoch as u64, self.orders());
                Box::new(batches.map(|batch| batch.map(Feed::Samples)))
            }
        };
        (clock.images, clock.seconds) = (0, 0.0);
        let mut began = Instant::now();
        for feed in feeds {
            let feed = feed?;
            let images = self.batch_range(self.progress.step).len() as u64 * self.particles() as u64;
            let step = self.step(&feed)?;
            unseen.push(step.losses.shallow_clone());
            self.progress.add(&step.losses, step.diagnostics.as_ref());
            if unseen.len() >= every {
                self.look(&mut unseen, clock)?;
            }
            self.bar.inc(1);
            // Saving and validation do not count towards images per second.
            clock.seconds += began.elapsed().as_secs_f64();
            clock.images += images;
            let due = clock.saved.elapsed().as_secs_f64() > self.spec.save_minutes * 60.0;
            let stopping = self.stopping();
            if due || stopping {
                self.look(&mut unseen, clock)?;
                self.save(clock)?;
            }
            if stopping {
                return Ok(Ending::Interrupted);
            }
            began = Instant::now();
        }
        self.look(&mut unseen, clock)?;
        Ok(Ending::Finished)
    }

    fn step(&mut self, feed: &Feed) -> Result<Step> {
        let total = self.spec.epochs * self.steps_per_epoch();
        let factor = schedule::factor(self.spec.schedule, self.progress.steps, self.spec.warmup_steps, total);
        let (cut, orders, samples) = (self.cut(), self.orders().len(), self.batch_range(self.progress.step).len());
        let (model, subspace, team, cutter) = (self.model, self.subspace, &self.team, self.cutter.clone());
        let stage = self.prefix.as_ref().map_or(0, |prefix| prefix.stage);
        let (method, theta) = (&mut self.method, &mut self.theta);
        guarded(&format!("step {}", self.progress.steps + 1), ROOM_TO_TRAIN, || {
            let (input, labels) = feed.input(stage, orders as i64);
            let own = Likelihood::on(model, subspace, cut, input, labels).of_share(team.share(), samples);
            let own = own.cut_by(cutter);
            method.step(theta, &mut Shared { own, team }, factor)
        })
    }

    /// Reads the losses of the last steps and stops at the first that is not finite.
    fn look(&mut self, unseen: &mut Vec<Tensor>, clock: &mut Clock) -> Result<()> {
        if unseen.is_empty() {
            return Ok(());
        }
        let count = unseen.len();
        let values = host_f64(&Tensor::stack(unseen, 0))?;
        unseen.clear();
        let particles = self.particles() as usize;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let step = self.progress.steps - count + at / particles + 1;
            bail!(
                "the loss of particle {} is {} in step {step} (epoch {}): {ADVICE}",
                at % particles,
                values[at],
                self.progress.epoch + 1
            );
        }
        let last = &values[values.len() - particles..];
        let loss = last.iter().sum::<f64>() / particles as f64;
        // The first step of an epoch is not timed, so there is no rate after it.
        let rate = clock.rate().map_or(String::new(), |rate| format!("  {rate:.0} images/s"));
        self.bar.set_message(format!("loss {loss:.4}{rate}"));
        if self.bar.is_hidden() && clock.told.elapsed().as_secs() >= TELL_EVERY_SECONDS {
            let total = self.spec.epochs * self.steps_per_epoch();
            tracing::info!("step {}/{total}  loss {loss:.4}{rate}", self.progress.steps);
            clock.told = Instant::now();
        }
        Ok(())
    }
}
