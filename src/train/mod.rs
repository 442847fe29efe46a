//! The training loop: batches, schedule, validation, checkpoints. It knows no method, model or data set by name.

mod chunks;
mod feed;
mod history;
mod mixing;
mod objective;
pub mod prefix;
pub mod progress;
mod recompute;
mod schedule;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use tch::{Tensor, no_grad_guard};

use crate::config::{Batches, Chunk, Selection, TrainSpec};
use crate::data::order::{Holdout, epoch_order};
use crate::images::ImageSet;
use crate::methods::{Method, Step};
use crate::metrics::Average;
use crate::model::Model;
use crate::parallel::{Team, World};
use crate::posterior::Mixture;
use crate::predict::{Members, Predictor};
use crate::predictions::Predictions;
use crate::run::RunFolder;
use crate::sensitivity::sensitivities;
use crate::state::State;
use crate::subspace::Subspace;
use crate::tensor::{guarded, host_f64};

pub use chunks::Chunks;
use feed::Feed;
pub use objective::{Cut, Likelihood, Shared};
use prefix::Prefix;
use progress::{EpochRow, Progress};

/// Steps between looks at the losses on a device where a look costs a synchronisation.
const LOOK_EVERY: usize = 20;

/// Share of the widest mean distance so far below which particles count as collapsed.
const COLLAPSED_SHARE: f64 = 0.01;

/// Seconds between plain lines where there is no progress bar.
const TELL_EVERY_SECONDS: u64 = 30;

/// Everything that one training run works on.
pub struct Trainer<'a> {
    pub spec: &'a TrainSpec,
    pub seed: u64,
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub method: Box<dyn Method>,
    /// `[n, P]`, f32.
    pub theta: Tensor,
    pub images: &'a ImageSet,
    pub holdout: Holdout,
    /// What `holdout.validation` are images of: `images`, or those of a published validation split.
    pub validation_images: &'a ImageSet,
    /// Fingerprint of the training images.
    pub data: String,
    pub run: &'a RunFolder,
    pub world: &'a World,
    pub team: Team<'a>,
    /// Set by Ctrl-C and SIGTERM.
    pub stop: Arc<AtomicBool>,
    pub progress: Progress,
    pub bar: ProgressBar,
    /// Particles a forward, in training and in validation.
    pub chunks: Chunks,
    /// What enters the first trained block, where it is kept.
    pub prefix: Option<Rc<Prefix>>,
}

/// What helps against a loss that is not finite.
const ADVICE: &str = "lower optimizer.*.lr, raise train.warmup_steps, set train.clip_norm = 1.0, or use train.precision = \
                      \"f32\"; a checkpoint holds finite particles only";

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Finished,
    /// Stopped by a signal, with a checkpoint.
    Interrupted,
}

/// Start times of this process's share of the work.
struct Clock {
    started: Instant,
    saved: Instant,
    /// When the last plain line was written, where there is no progress bar.
    told: Instant,
    /// Images of the current epoch since this process started, each particle's counted, and the seconds spent on them.
    images: u64,
    seconds: f64,
}

impl Clock {
    /// Images a second in the current epoch.
    fn rate(&self) -> f64 {
        self.images as f64 / self.seconds.max(1e-9)
    }
}

impl Trainer<'_> {
    /// Trains to the end or to a signal.
    ///
    /// # Errors
    /// A loss that is not finite, a batch that cannot be read, a checkpoint that cannot be written.
    pub fn train(&mut self) -> Result<Ending> {
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

    /// The particles that training chose: `[n, P]`, and the epoch they come from.
    pub fn selected(&self) -> (&Tensor, usize) {
        match (&self.progress.best, self.spec.select) {
            (Some(best), Selection::Best) => (&best.theta, best.epoch),
            _ => (&self.theta, self.progress.epoch),
        }
    }

    /// The posterior that training chose.
    pub fn posterior(&self) -> Mixture {
        match (&self.progress.best, self.spec.select) {
            (Some(best), Selection::Best) => {
                let std = best.std.as_ref().map(Tensor::shallow_clone);
                Mixture { theta: best.theta.shallow_clone(), std, laplace: None, seed: self.seed }
            }
            _ => {
                let std = self.method.posterior_std();
                Mixture { theta: self.theta.shallow_clone(), std, laplace: None, seed: self.seed }
            }
        }
    }

    /// Wall seconds of training, over all interruptions.
    pub fn wall_seconds(&self) -> f64 {
        self.progress.rows.last().map_or(self.progress.earlier_seconds, |row| row.wall_seconds)
    }

    /// A loss may still be finite when the step after it is not.
    ///
    /// # Errors
    /// The first particle with a parameter that is NaN or infinite.
    pub fn check_finite(&self) -> Result<()> {
        let finite = host_f64(&self.theta.isfinite().all_dim(1, false).to_kind(tch::Kind::Double))?;
        match finite.iter().position(|ok| *ok == 0.0) {
            Some(particle) => bail!(
                "particle {particle} has parameters that are not finite after step {}: {ADVICE}",
                self.progress.steps
            ),
            None => Ok(()),
        }
    }

    /// Restores the run from its checkpoint.
    pub fn resume(&mut self, state: &State) -> Result<()> {
        if state.text("data")? != self.data {
            bail!("the training images are not those that the run was started with: put them back");
        }
        let stored = state.text("computed_on")?;
        let now = self.computed_on();
        if stored != now {
            tracing::warn!("this run computed on {stored}, now on {now}: it goes on, but not bit for bit");
        }
        if self.spec.particle_chunk == Chunk::Auto && processes_of(state)? == self.world.size() as i64 {
            // Another cut would round otherwise, and the run would not go on bit for bit.
            self.chunks.training = state.count("particle_chunk")? as usize;
        }
        state.copy_into("theta", &mut self.theta)?;
        self.method.load(state)?;
        self.progress.load(state)
    }

    /// Device, type and number of processes, on which bits depend.
    fn computed_on(&self) -> String {
        let (device, kind) = (crate::device::name(self.model.device), crate::device::precision_name(self.model.kind));
        match self.world.size() {
            1 => format!("{device} in {kind}"),
            processes => format!("{device} in {kind}, {processes} processes"),
        }
    }

    fn particles(&self) -> i64 {
        self.theta.size()[0]
    }

    /// Steps of one epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.holdout.train.len().div_ceil(self.spec.batch_size)
    }

    /// Whether any process was asked to stop: all of them find the same.
    pub fn stopping(&self) -> bool {
        self.world.any(self.stop.load(Ordering::Relaxed))
    }

    fn cut(&self) -> Cut {
        let Chunks { training: particle_chunk, .. } = self.chunks;
        Cut { particle_chunk, accumulate: self.spec.accumulate, recompute: self.spec.recompute }
    }

    /// Particles whose data orders this process follows; the first one's is everybody's where it is shared.
    fn orders(&self) -> Range<usize> {
        match self.spec.batches {
            Batches::Independent => self.team.share().rows.clone(),
            Batches::Shared => 0..1,
        }
    }

    /// Places in an epoch's order that make up the batch of a step.
    fn batch_range(&self, step: usize) -> Range<usize> {
        step * self.spec.batch_size..((step + 1) * self.spec.batch_size).min(self.holdout.train.len())
    }

    /// This process's share of the remaining batches of the current epoch, each with the samples of all its orders one
    /// after the other.
    fn plan(&self) -> Vec<Vec<u32>> {
        let (share, train) = (self.team.share(), &self.holdout.train);
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
        let (images, prefix) = (self.images, self.prefix.clone());
        let feeds: Box<dyn Iterator<Item = Result<Feed>>> = match &prefix {
            Some(prefix) => Box::new(plan.into_iter().map(|indices| {
                let labels = images.labels(&indices);
                Ok(Feed::Tokens(prefix.tokens(&indices)?, labels))
            })),
            None => {
                let batches = images.training_batches(plan, self.progress.epoch as u64, self.orders());
                Box::new(batches.map(|batch| batch.map(Feed::Images)))
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
            // Checkpoints and validation do not count as training time of an image.
            clock.seconds += began.elapsed().as_secs_f64();
            clock.images += images;
            let due = clock.saved.elapsed().as_secs_f64() > self.spec.checkpoint_minutes * 60.0;
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
        let (model, subspace, team) = (self.model, self.subspace, &self.team);
        let block = self.prefix.as_ref().map_or(0, |prefix| prefix.block);
        let (method, theta) = (&mut self.method, &mut self.theta);
        guarded(&format!("step {}", self.progress.steps + 1), || {
            let (input, labels) = feed.input(block, orders as i64);
            let own = Likelihood::on(model, subspace, cut, input, labels).of_share(team.share(), samples);
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
        // An epoch's first step is not timed, so after it there is no rate yet.
        let rate = if clock.images > 0 { format!("  {:.0} images/s", clock.rate()) } else { String::new() };
        self.bar.set_message(format!("loss {loss:.4}{rate}"));
        if self.bar.is_hidden() && clock.told.elapsed().as_secs() >= TELL_EVERY_SECONDS {
            let total = self.spec.epochs * self.steps_per_epoch();
            tracing::info!("step {}/{total}  loss {loss:.4}{rate}", self.progress.steps);
            clock.told = Instant::now();
        }
        Ok(())
    }

    /// Validates, writes the epoch's row and keeps the best particles.
    fn close_epoch(&mut self, clock: &Clock) -> Result<()> {
        self.world.align(&mut self.theta)?;
        let (train_loss, diagnostics) = self.progress.means()?;
        let names = self.method.diagnostics();
        let total = self.spec.epochs * self.steps_per_epoch();
        let validation = self.validate()?;
        let mut row = EpochRow {
            epoch: self.progress.epoch + 1,
            step: self.progress.steps,
            rate_factor: schedule::factor(self.spec.schedule, self.progress.steps - 1, self.spec.warmup_steps, total),
            train_loss,
            validation_nll: None,
            validation_accuracy: None,
            validation_ece: None,
            diagnostics: names.iter().map(|n| n.to_string()).zip(diagnostics).collect(),
            wall_seconds: self.progress.earlier_seconds + clock.started.elapsed().as_secs_f64(),
            images_per_second: clock.rate(),
        };
        row.diagnostics.extend(self.leave_one_out()?.map(|loss| ("loo_loss".to_string(), loss)));
        if let Some([nll, accuracy, ece]) = validation {
            (row.validation_nll, row.validation_accuracy, row.validation_ece) = (Some(nll), Some(accuracy), Some(ece));
            if self.spec.select == Selection::Best {
                let method = &self.method;
                self.progress.offer(nll, &self.theta, || method.posterior_std());
            }
        }
        self.warn_on_collapse(&row);
        tracing::info!("{}", history::describe(&row, self.spec.epochs));
        self.progress.finish_epoch(row);
        if self.world.leads() { history::write(self.run, &self.progress.rows) } else { Ok(()) }
    }

    /// NLL, accuracy and ECE of averaged logits on the held-out images.
    fn validate(&self) -> Result<Option<[f64; 3]>> {
        if self.holdout.validation.is_empty() {
            return Ok(None);
        }
        let _guard = no_grad_guard();
        let members = Members::Rows { subspace: self.subspace, theta: &self.theta, chunk: self.chunks.predicting };
        let images = (self.validation_images, &self.holdout.validation[..]);
        let predictions =
            predictions(self.model, &members, images, self.spec.eval_batch_size, self.world).context("validation")?;
        let scores = crate::metrics::Scores::compute(&predictions)?;
        let value = |key: &str| crate::metrics::value(&scores, key, Average::Logit).unwrap_or(f64::NAN);
        Ok(Some([value("nll"), value("accuracy"), value("ece")]))
    }

    /// Mean leave-one-out loss of the first training images, where the config asks for it.
    fn leave_one_out(&self) -> Result<Option<f64>> {
        let count = self.spec.loo_samples.min(self.holdout.train.len());
        let Some(std) = (count > 0).then(|| self.method.posterior_std()).flatten() else { return Ok(None) };
        let theta = self.theta.shallow_clone();
        let mixture = Mixture { theta, std: Some(std), laplace: None, seed: self.seed };
        let images = (self.images, &self.holdout.train[..count]);
        let found = sensitivities(self.model, self.subspace, &mixture, images, &ProgressBar::hidden())
            .context("train.loo_samples")?;
        Ok(Some(found.iter().map(|one| one.loo_loss).sum::<f64>() / count as f64))
    }

    fn warn_on_collapse(&self, row: &EpochRow) {
        let value = |name: &str| row.diagnostics.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        let earlier = self.progress.rows.iter().flat_map(|row| &row.diagnostics);
        let widest = earlier.filter(|(name, _)| name == "mean_distance").map(|(_, v)| *v).fold(0.0, f64::max);
        if value("mean_distance").is_some_and(|distance| distance < COLLAPSED_SHARE * widest) {
            tracing::warn!("the particles collapse to one point in epoch {}: raise method.svgd.gamma", row.epoch);
        }
        if value("repulsion_ratio").is_some_and(|ratio| ratio > 10.0) {
            tracing::warn!("repulsion outweighs the gradients in epoch {}: lower method.svgd.gamma", row.epoch);
        }
    }

    /// Writes everything that a resumed run needs, in the first process.
    fn save(&self, clock: &mut Clock) -> Result<()> {
        self.check_finite()?;
        clock.saved = Instant::now();
        if !self.world.leads() {
            return Ok(());
        }
        let mut state = State::default();
        state.put("theta", &self.theta);
        self.method.save(&mut state);
        state.put_count("threads", i64::from(tch::get_num_threads()));
        state.put_count("particle_chunk", self.chunks.training as i64);
        state.put_count("processes", self.world.size() as i64);
        let wall_seconds = self.progress.earlier_seconds + clock.started.elapsed().as_secs_f64();
        self.progress.save(&mut state, wall_seconds)?;
        state.put_text("data", &self.data);
        state.put_text("computed_on", &self.computed_on());
        state.write(&self.run.checkpoint()).context(
            "the checkpoint could not be written; the one before it is intact: make room, and the same command goes on",
        )
    }
}

/// Processes that trained a checkpoint.
pub fn processes_of(state: &State) -> Result<i64> {
    if state.has("processes") { state.count("processes") } else { Ok(1) }
}

/// Predictions of `members` on some images of a set, computed by all processes together.
fn predictions(
    model: &Model,
    members: &Members,
    (set, indices): (&ImageSet, &[u32]),
    batch_size: usize,
    world: &World,
) -> Result<Predictions> {
    let predictor = Predictor::new(model, members);
    let logits = predictor.shared_logits(world, set, indices, batch_size, &ProgressBar::hidden())?;
    let shape = crate::predictions::Shape {
        members: predictor.members(),
        samples: indices.len(),
        classes: model.head.classes() as usize,
    };
    let labels = indices.iter().map(|i| set.split.labels[*i as usize]).collect();
    Predictions::new(shape, logits, labels)
}
