//! The training loop over epochs and steps.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use tch::Tensor;

use super::feed::Feed;
use super::followers::Followers;
use super::gauge::{Gauge, Left, Reading};
use super::likelihood::Likelihood;
use super::material::Material;
use super::prefix::Prefix;
use super::progress::Progress;
use super::schedule;
use super::shared::Shared;
use super::slice::Passes;
use crate::base::tensor::{ROOM_TO_TRAIN, guarded, host_f64};
use crate::data::order::epoch_order;
use crate::experiment::{Batches, TrainSpec};
use crate::machine::memory::{self, Cutter};
use crate::machine::parallel::{Team, World};
use crate::methods::{Method, Step};
use crate::model::Model;
use crate::run::RunFolder;
use crate::subspace::Subspace;

/// The number of steps between two reads of the losses, on a device where a read costs a synchronisation.
const LOOK_EVERY: usize = 20;

/// The seconds between two lines of progress if there is no progress bar.
const TELL_EVERY_SECONDS: u64 = 30;

/// The characters of such a line behind the number of the step.
const LINE: usize = 100;

/// The state of the training loop.
pub(super) struct Trainer<'a> {
    pub(super) spec: &'a TrainSpec,
    pub(super) seed: u64,
    pub(super) model: &'a Model,
    pub(super) subspace: &'a dyn Subspace,
    pub(super) method: Box<dyn Method>,
    /// The particles, `[n, P]` in f32.
    pub(super) theta: Tensor,
    pub(super) material: &'a Material,
    pub(super) folder: &'a RunFolder,
    pub(super) world: &'a World,
    pub(super) team: Team<'a>,
    /// A flag that the caller sets to stop training after the current step.
    pub(super) stop: Arc<AtomicBool>,
    /// The epoch after which training pauses.
    pub(super) until_epoch: Option<usize>,
    pub(super) progress: Progress,
    pub(super) bar: ProgressBar,
    pub(super) gauge: Gauge,
    pub(super) followers: Followers,
    /// The number of particles and images that go through the network at once.
    pub(super) cutter: Rc<Cutter>,
    /// The cached input of the first trained stage, if there is a cache.
    pub(super) prefix: Option<Rc<Prefix>>,
}

/// The advice printed if a loss is not finite.
pub(super) const ADVICE: &str = "lower optimizer.*.lr, raise train.warmup_steps, set train.clip_norm = 1.0, or use train.precision = \
                      \"f32\"; the resume file holds finite particles only";

/// The way in which the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Finished,
    /// Training was stopped on request or paused as asked, and a resume file was written.
    Interrupted,
}

/// The times of this process's share of the work.
pub(super) struct Clock {
    pub(super) started: Instant,
    pub(super) saved: Instant,
    /// The time of the last line of progress if there is no progress bar.
    pub(super) told: Instant,
    /// The images of the current epoch since this process started, counted once for each particle. `seconds` is the
    /// time spent on them.
    pub(super) images: u64,
    pub(super) steps: usize,
    pub(super) seconds: f64,
}

impl Clock {
    /// Returns the images per second in the current epoch, once a step has been timed.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.images > 0).then(|| self.images as f64 / self.seconds.max(1e-9))
    }
}

impl<'a> Trainer<'a> {
    /// Trains to the end, or until a stop is requested.
    ///
    /// # Errors
    /// Fails if a loss is not finite, if a batch cannot be read, or if the resume file cannot be written.
    pub(super) fn train(&mut self) -> Result<Ending> {
        let now = Instant::now();
        let mut clock = Clock { started: now, saved: now, told: now, images: 0, steps: 0, seconds: 0.0 };
        self.followers.start(self.folder, &self.progress);
        self.bar.set_length(self.total_steps() as u64);
        self.bar.set_position(self.progress.steps as u64);
        while self.progress.epoch < self.spec.epochs && !self.has_stalled() {
            if self.until_epoch.is_some_and(|until| self.progress.epoch >= until) {
                return Ok(Ending::Interrupted);
            }
            if self.epoch(&mut clock)? == Ending::Interrupted {
                return Ok(Ending::Interrupted);
            }
            let ended = Instant::now();
            self.close_epoch(&clock)?;
            self.save(&mut clock)?;
            self.gauge.closed(ended.elapsed());
            if self.stopping() && self.progress.epoch < self.spec.epochs {
                return Ok(Ending::Interrupted);
            }
        }
        Ok(Ending::Finished)
    }

    /// Returns the wall-clock seconds of training, over all interruptions.
    pub(super) fn wall_seconds(&self) -> f64 {
        self.progress.rows.last().map_or(self.progress.earlier_seconds, |row| row.wall_seconds)
    }

    pub(super) fn particles(&self) -> i64 {
        self.theta.size()[0]
    }

    /// Returns the number of steps of one epoch.
    pub(super) fn steps_per_epoch(&self) -> usize {
        self.material.batches(self.spec.batch_size)
    }

    /// Returns the number of steps of the whole training.
    pub(super) fn total_steps(&self) -> usize {
        self.spec.epochs * self.steps_per_epoch()
    }

    /// Returns the factor of the learning rate in the step after `steps` steps.
    pub(super) fn rate_factor(&self, steps: usize) -> f64 {
        schedule::factor(self.spec.schedule, steps, self.spec.warmup_steps, self.total_steps())
    }

    /// Returns whether a stop was requested in any process. All processes get the same answer.
    pub(super) fn stopping(&self) -> bool {
        self.world.any(self.stop.load(Ordering::Relaxed))
    }

    fn passes(&self) -> Passes {
        Passes { particle_chunk: 0, accumulate: self.spec.accumulate.parts(), recompute: self.spec.recompute }
    }

    /// Returns the particles whose data orders this process follows. If all particles share one order, it is that of
    /// the first.
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

    /// Returns this process's share of each remaining batch of the current epoch, with the samples of all its orders
    /// one after the other.
    fn plan(&self) -> Vec<Vec<u32>> {
        let (share, train) = (self.team.share(), &self.material.holdout.train);
        let permutations: Vec<Vec<u32>> = self
            .orders()
            .map(|particle| epoch_order(self.seed, self.progress.epoch as u64, particle as u64, train.len()))
            .collect();
        let batch = |step: usize| {
            let range = self.batch_range(step);
            let samples: Vec<usize> = self.passes().samples(share, range.len()).into_iter().flatten().collect();
            let of = |order: &Vec<u32>| -> Vec<u32> {
                samples.iter().map(|sample| train[order[range.start + sample] as usize]).collect()
            };
            permutations.iter().flat_map(of).collect()
        };
        (self.progress.step..self.steps_per_epoch()).map(batch).collect()
    }

    fn epoch(&mut self, clock: &mut Clock) -> Result<Ending> {
        let mut unseen: Vec<Tensor> = Vec::new();
        let every = if self.theta.device() == tch::Device::Cpu { 1 } else { LOOK_EVERY };
        (clock.images, clock.steps, clock.seconds) = (0, 0, 0.0);
        let mut began = Instant::now();
        for feed in self.feeds() {
            let feed = feed?;
            let images = self.batch_range(self.progress.step).len() as u64 * self.particles() as u64;
            let step = self.step(&feed)?;
            unseen.push(step.losses.shallow_clone());
            self.progress.add(&step.losses, step.diagnostics.as_ref());
            if unseen.len() >= every {
                self.look(&mut unseen, clock)?;
            }
            self.bar.inc(1);
            // Saving and validation do not count as training time of an image.
            clock.seconds += began.elapsed().as_secs_f64();
            clock.images += images;
            clock.steps += 1;
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

    /// Returns the inputs of the remaining steps of the current epoch.
    fn feeds(&self) -> Box<dyn Iterator<Item = Result<Feed>> + 'a> {
        let (plan, images) = (self.plan(), &self.material.train);
        match self.prefix.clone() {
            Some(prefix) => Box::new(plan.into_iter().map(move |indices| {
                let labels = images.labels(&indices);
                Ok(Feed::Entering(prefix.values(&indices)?, labels))
            })),
            None => {
                let batches = images.training_batches(plan, self.progress.epoch as u64, self.orders());
                Box::new(batches.map(|batch| batch.map(Feed::Samples)))
            }
        }
    }

    fn step(&mut self, feed: &Feed) -> Result<Step> {
        let factor = self.rate_factor(self.progress.steps);
        let (passes, orders, samples) =
            (self.passes(), self.orders().len(), self.batch_range(self.progress.step).len());
        let (model, subspace, team, cutter) = (self.model, self.subspace, &self.team, self.cutter.clone());
        let stage = self.prefix.as_ref().map_or(0, |prefix| prefix.stage);
        let (method, theta) = (&mut self.method, &mut self.theta);
        guarded(&format!("step {}", self.progress.steps + 1), ROOM_TO_TRAIN, || {
            let (input, labels) = feed.input(stage, orders as i64);
            let own = Likelihood::on(model, subspace, passes, input, labels).of_share(team.share(), samples);
            let own = own.chunked_by(cutter);
            method.step(theta, &mut Shared { own, team }, factor)
        })
    }

    /// Reads the losses of the last steps, and fails at the first that is not finite.
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
        let means: Vec<f64> =
            values.chunks(particles).map(|losses| losses.iter().sum::<f64>() / particles as f64).collect();
        self.tell_followers(&means);
        let loss = means[count - 1];
        let reading = self.reading(loss, clock);
        self.bar.set_message(reading.line(crate::base::bar_terminal::width()));
        if self.bar.is_hidden() && clock.told.elapsed().as_secs() >= TELL_EVERY_SECONDS {
            tracing::info!("step {}/{}  {}", self.progress.steps, self.total_steps(), reading.line(LINE));
            clock.told = Instant::now();
        }
        Ok(())
    }

    /// Hands the mean losses of the last steps to those who follow the run.
    fn tell_followers(&mut self, losses: &[f64]) {
        let (spec, total) = (self.spec, self.total_steps());
        let rate = |steps: usize| schedule::factor(spec.schedule, steps, spec.warmup_steps, total);
        self.followers.steps(self.progress.steps + 1 - losses.len(), losses, rate);
    }

    /// Returns what is known at this moment, with the mean loss of the last step.
    fn reading(&mut self, loss: f64, clock: &Clock) -> Reading {
        self.gauge.stepped(clock.steps, clock.seconds);
        let (steps_per_epoch, device) = (self.steps_per_epoch(), self.theta.device());
        let work = Left {
            steps: steps_per_epoch - self.progress.step,
            epochs: self.spec.epochs - self.progress.epoch - 1,
            steps_per_epoch,
        };
        let last = self.progress.rows.last();
        Reading {
            loss,
            validation: last.and_then(|row| Some((row.validation_nll?, row.validation_accuracy?))),
            // An epoch's first step is not timed, so after it there is no rate yet.
            images_per_second: clock.rate(),
            left: self.gauge.left(work),
            held: self.gauge.held(|| memory::held_bytes(device)),
            is_gpu: device != tch::Device::Cpu,
        }
    }
}
