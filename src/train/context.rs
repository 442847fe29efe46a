//! The inputs of a training, which stay the same from its first step to its last, and its images for training and validation; among
//! them the learning rate over time (a linear warm-up, then a cosine or a line to 0, or a constant) and its factors by column.

use anyhow::{Context as _, Result, bail, ensure};
use tch::Tensor;

use super::likelihood::Learner;
use crate::base::small;
use crate::data::batches::{SampleSet, Samples};
use crate::data::order::Holdout;
use crate::data::overlap::{Overlap, Seen};
use crate::data::{Split, contents};
use crate::experiment::{Criterion, Experiment, PrefixCache, Schedule, TrainSpec, Training, Validation};
use crate::machine::device::{name, precision_name};
use crate::machine::parallel::{ProcessGroup, Sharding};
use crate::methods::post_hoc;
use crate::metrics::NLL;
use crate::model::Model;
use crate::model::network::{HEAD, Network, block_of};
use crate::session::{Session, TrainingImages};
use crate::subspace::{Layout, Shape, Subspace};
use crate::tasks::{Loss, MixedLabels, Recipe};

/// The config, the model and the images of a training.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub experiment: &'a Experiment,
    pub training: &'a Training,
    pub session: &'a Session,
    pub subspace: &'a dyn Subspace,
    pub material: &'a Material,
    /// Whether the passes of steps are shared with other trainings.
    pub is_packed: bool,
}

impl<'a> Context<'a> {
    /// Creates the context of the training that a config asks for.
    ///
    /// # Errors
    /// Fails if the config trains nothing.
    pub fn new(experiment: &'a Experiment, session: &'a Session, material: &'a Material) -> Result<Context<'a>> {
        let training = experiment.training.as_ref().context("the config has nothing to train")?;
        Ok(Context { experiment, training, session, subspace: session.subspace()?, material, is_packed: false })
    }

    pub fn spec(&self) -> &'a TrainSpec {
        &self.training.train
    }

    pub fn model(&self) -> &'a Model {
        &self.session.model
    }

    pub fn learner(&self) -> Learner<'a> {
        let loss: &dyn Loss = match &self.material.loss {
            Some(changed) => &**changed,
            None => &*self.experiment.task,
        };
        Learner { model: self.model(), subspace: self.subspace, loss }
    }

    pub fn group(&self) -> &'a ProcessGroup {
        &self.session.group
    }

    /// Returns the number of particles.
    pub fn particles(&self) -> i64 {
        self.training.method.spec.particles()
    }

    /// Returns the number of steps of one epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.material.batches(self.spec().batch_size)
    }

    /// Returns the number of steps of the whole training.
    pub fn steps(&self) -> usize {
        self.spec().epochs * self.steps_per_epoch()
    }

    /// Returns the learning rate over the whole training.
    pub fn rates(&self) -> Rates {
        let TrainSpec { schedule, warmup_steps, .. } = *self.spec();
        Rates { schedule, warmup_steps, steps: self.steps() }
    }

    /// Returns the factors of the learning rates of the columns, `[P]`; `None` if all are 1.
    ///
    /// # Errors
    /// Fails if a factor is asked for of columns that are not trained.
    pub fn rate_factors(&self) -> Result<Option<Tensor>> {
        rate_factors(self.spec(), &*self.model().network, self.subspace.layout())
    }

    /// Returns the first stage that every step computes; 0 where no output of the ones below can be kept.
    ///
    /// # Errors
    /// Fails if a cache is asked for and of no use.
    pub fn first_computed(&self) -> Result<usize> {
        let spec = self.spec();
        let stage = self.model().network.first_stage(self.subspace.layout());
        // A cache that is asked for in spite of this was refused when the config was read.
        if self.training.why_no_prefix(self.material.train.is_augmented()).is_some() {
            return Ok(0);
        }
        let is_asked_for = matches!(spec.prefix_cache, PrefixCache::Memory | PrefixCache::Disk);
        ensure!(
            stage > 0 || !is_asked_for,
            "train.prefix_cache: the first block is trained, so there is nothing to keep; leave it out"
        );
        Ok(stage)
    }

    /// Checks the method against the number of steps and of classes, and against the head, and settings against what is trained.
    ///
    /// # Errors
    /// Fails if the method cannot do with so few, if logits are not those that it is made for, or if a setting would do nothing.
    pub fn check(&self) -> Result<()> {
        let (spec, head) = (&self.training.method.spec, &self.model().head);
        ensure!(
            head.cap.is_none() || !spec.needs_linear_logits(),
            "method.{}: the logits of this network are bounded (final_logit_softcapping), and its bound takes them for linear in what \
             enters the head: train a new classifier ([head.linear])",
            self.training.method.key
        );
        self.rate_factors()?;
        self.first_computed()?;
        // Numbers and free answers are selected by their NLL, which always has a value.
        let (Criterion(metric), classes) = (self.spec().select_by, head.classes() as usize);
        ensure!(
            self.spec().select_by == Criterion(&NLL) || metric.is_defined_for(classes),
            "train.select_by = \"{}\": has no value for {classes} classes ({}): choose another metric",
            metric.key,
            metric.definition
        );
        spec.check_steps(self.steps())?;
        spec.check_classes(head.classes())
    }

    /// Returns the inputs of a fit around particles.
    pub fn post_hoc(&self) -> post_hoc::Context<'a> {
        let Material { train, holdout, .. } = self.material;
        post_hoc::Context {
            model: self.model(),
            subspace: self.subspace,
            train: Samples { set: train, indices: &holdout.train },
            validation: Samples { set: self.material.validation(), indices: &holdout.validation },
            batch_size: self.spec().eval_batch_size,
            seed: self.experiment.seed,
        }
    }

    /// Logs the trained parameters, the device and the number of processes, and warns about doubtful settings.
    pub fn announce(&self, sharding: &Sharding) {
        let (particles, parameters) = (self.particles(), self.subspace.layout().parameters());
        let holdout = &self.material.holdout;
        tracing::info!(
            "{} x {}: {} of {parameters} parameters ({} in all), {} training and {} validation images, {} on {}",
            self.training.subspace.key,
            self.training.method.key,
            small::particles(particles),
            particles * parameters,
            holdout.train.len(),
            holdout.validation.len(),
            precision_name(self.model().kind),
            name(self.session.device),
        );
        if self.group().size() > 1 {
            let share = sharding.share();
            tracing::info!(
                "{} processes of {} threads: {} particles and 1/{} of each batch in the first",
                self.group().size(),
                tch::get_num_threads(),
                share.rows.len(),
                share.members
            );
        }
        self.experiment.warnings(holdout.train.len()).iter().for_each(|warning| tracing::warn!("{warning}"));
    }
}

/// The training images, and the images for validation.
pub struct Material {
    pub train: SampleSet,
    /// The published validation split, if the config asks for it.
    published: Option<SampleSet>,
    pub holdout: Holdout,
    /// The loss that `[train]` asks for instead of the task's own.
    pub loss: Option<Box<dyn Loss>>,
    /// The fingerprint of the images: a resumed run must see the same ones.
    pub fingerprint: String,
    /// The hash of the samples as the user's own files list them, by which a later change is noticed (see [`contents`]).
    pub contents: Option<String>,
    /// The test images that are among the training images.
    pub overlap: Vec<Overlap>,
}

impl Material {
    /// Reads the splits and holds out the images that the config asks for. Returns the training images, too, with which test images are
    /// compared.
    ///
    /// # Errors
    /// Fails if images cannot be read, or if a held-out share leaves no image for training or for validation.
    pub fn read(experiment: &Experiment, session: &Session) -> Result<(Material, Seen)> {
        let TrainingImages { images: train, listing, fingerprint, seen } = session.training_images(experiment)?;
        let published = session.published_validation(experiment)?;
        let contents = listing.map(|listing| {
            let of_published = published.as_ref().map(Split::listing);
            contents(&session.classes, [listing].iter().chain(&of_published))
        });
        let fingerprint = fingerprint + &published.as_ref().map(Split::fingerprint).unwrap_or_default();
        session.group.agree("the training data", &fingerprint)?;
        let workers = session.settings.workers;
        let published = published.map(|split| SampleSet::new(split, session.device, workers)).transpose()?;
        let holdout = hold_out(experiment, &train, published.as_ref())?;
        let loss = match &experiment.training {
            Some(training) => changed_loss(&training.train, session, &train.split.labels, &holdout.train)?,
            None => None,
        };
        Ok((Material { train, published, holdout, loss, fingerprint, contents, overlap: Vec::new() }, seen))
    }

    /// Creates material from given images with the task's own loss; `holdout` selects the validation images.
    pub fn of(train: SampleSet, holdout: Holdout, fingerprint: String) -> Material {
        let (published, loss, contents, overlap) = (None, None, None, Vec::new());
        Material { train, published, holdout, loss, fingerprint, contents, overlap }
    }

    /// Returns the number of training batches of an epoch, the last of which may be smaller.
    pub fn batches(&self, batch_size: usize) -> usize {
        self.holdout.train.len().div_ceil(batch_size)
    }

    /// Returns the set of images that `holdout.validation` indexes.
    pub fn validation(&self) -> &SampleSet {
        self.published.as_ref().unwrap_or(&self.train)
    }
}

/// Returns the loss that `[train]` asks for instead of the task's own.
fn changed_loss(spec: &TrainSpec, session: &Session, labels: &[u32], train: &[u32]) -> Result<Option<Box<dyn Loss>>> {
    if spec.mixup.is_some() {
        return Ok(Some(Box::new(MixedLabels::new(spec.label_smoothing))));
    }
    if spec.class_weights.is_none() && spec.label_smoothing == 0.0 {
        return Ok(None);
    }
    let mut images = vec![0; session.model.head.classes() as usize];
    train.iter().for_each(|index| images[labels[*index as usize] as usize] += 1);
    let weights = spec.class_weights.as_ref().map(|weights| weights.numbers(&images)).transpose()?;
    Ok(Some(Box::new(Recipe::new(weights, spec.label_smoothing))))
}

fn hold_out(experiment: &Experiment, images: &SampleSet, published: Option<&SampleSet>) -> Result<Holdout> {
    let validation = experiment.data.validation;
    let mut holdout = validation.holdout(experiment.seed, &images.split.labels);
    if let Some(published) = published {
        holdout.validation = (0..published.samples() as u32).collect();
    }
    let (key, count) = (&experiment.data.key, images.samples());
    if let Validation::HeldOut(share) = validation {
        if holdout.train.is_empty() {
            bail!("data.{key}.validation = {share}: leaves no image to train on");
        }
        if share > 0.0 && holdout.validation.is_empty() {
            bail!("data.{key}.validation = {share}: holds out no image of {count}: raise it");
        }
    }
    Ok(holdout)
}

/// The learning rate over a training, as shares of the base learning rate.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    pub schedule: Schedule,
    pub warmup_steps: usize,
    /// The number of steps of the whole training.
    pub steps: usize,
}

impl Rates {
    /// Returns the share in the step after `done` steps.
    pub fn factor(&self, done: usize) -> f64 {
        if done < self.warmup_steps {
            return (done + 1) as f64 / self.warmup_steps as f64;
        }
        match self.schedule {
            Schedule::Constant => 1.0,
            Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * self.share(done)).cos()),
            Schedule::Linear => 1.0 - self.share(done),
        }
    }

    /// Returns the share of the steps after the warm-up that are done.
    fn share(&self, done: usize) -> f64 {
        let length = self.steps.saturating_sub(self.warmup_steps).max(1) as f64;
        ((done - self.warmup_steps) as f64 / length).min(1.0)
    }
}

/// Returns the factors of the learning rates of the columns, `[P]`; `None` if all are 1.
///
/// # Errors
/// Fails if a factor is asked for of columns that are not trained.
pub fn rate_factors(spec: &TrainSpec, network: &dyn Network, layout: &Layout) -> Result<Option<Tensor>> {
    if spec.changed_rate().is_none() {
        return Ok(None);
    }
    let is_head = |name: &str| name.starts_with(HEAD);
    let trains = |of: &dyn Fn(&str) -> bool| layout.columns.iter().any(|column| of(&column.name));
    let asked = |factor: f64, trained: bool, key: &str, what: &str| {
        ensure!(factor == 1.0 || trained, "train.{key} = {factor}: no {what} is trained: leave it out");
        Ok(())
    };
    asked(spec.head_rate, trains(&is_head), "head_rate", "head")?;
    asked(spec.layer_decay, trains(&|name| block_of(name).is_some()), "layer_decay", "numbered block")?;
    let is_low_rank = layout.blocks.iter().any(|block| block.shape != Shape::Dense);
    asked(spec.b_rate, is_low_rank, "b_rate", "low-rank update")?;
    let (blocks, stages) = (network.blocks(), network.stages());
    // The distance from the head, by layers as timm counts them.
    let below_head = |name: &str| match block_of(name) {
        _ if is_head(name) => 0,
        Some(block) => blocks.saturating_sub(block),
        None if network.stage_of(name) == stages => 1,
        None => blocks + 1,
    };
    let mut factors = vec![0f64; layout.parameters() as usize];
    for column in &layout.columns {
        let name = column.name.as_str();
        let mut factor = spec.layer_decay.powi(below_head(name) as i32);
        if is_head(name) {
            factor *= spec.head_rate;
        }
        if name.ends_with(".B") {
            factor *= spec.b_rate;
        }
        factors[column.start as usize..][..column.count() as usize].fill(factor);
    }
    Ok(Some(Tensor::from_slice(&factors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warms_up_then_falls() {
        let of = |schedule| Rates { schedule, warmup_steps: 4, steps: 12 };
        let at = |done| of(Schedule::Cosine).factor(done);
        assert_eq!([at(0), at(3), at(4)], [0.25, 1.0, 1.0]);
        assert!((at(8) - 0.5).abs() < 1e-12);
        assert!(at(11) > 0.0 && at(11) < 0.04);
        assert_eq!(of(Schedule::Constant).factor(11), 1.0);
        assert_eq!([4, 6, 8, 11].map(|done| of(Schedule::Linear).factor(done)), [1.0, 0.75, 0.5, 0.125]);
    }
}
