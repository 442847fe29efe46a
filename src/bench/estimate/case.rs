//! An experiment with its network laid out, whose parts are counted.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::bench::estimate::lengths::{Lengths, Machine, Part};
use crate::bench::estimate::network::Sized;
use crate::bench::flops::{Counting, Pass, Reads, Sample, Work};
use crate::data::SplitName;
use crate::experiment::{Batches, Experiment, PrefixCache, Training};
use crate::machine::memory::Within;
use crate::methods::Passes;
use crate::model::Model;
use crate::posterior::{Output, Predictive};
use crate::rehearse::estimate::KEPT_IN_MEMORY;
use crate::rehearse::sizes::Real;
use crate::subspace::Subspace;
use crate::train::chunks::{Images, Step, posterior_bytes, state_bytes};
use crate::train::has_room;

/// An experiment with its network laid out.
pub struct Case<'a> {
    pub experiment: &'a Experiment,
    training: &'a Training,
    pub name: String,
    pub model: Model,
    longest: Sample,
    subspace: Box<dyn Subspace>,
    pub real: Real,
    pub lengths: Option<Lengths>,
    checkpoint_bytes: u64,
}

/// The samples of a pass.
struct Samples {
    /// Their number.
    count: i64,
    split: SplitName,
    /// Their number in a batch, whose longest prompt gives the length of all.
    batch: usize,
    own: bool,
    /// Whether they are kept from the training's start on, as long as the longest prompt that may be.
    kept: bool,
}

impl<'a> Case<'a> {
    /// Lays out the subspace of an experiment on a network.
    ///
    /// # Errors
    /// Fails if the config trains nothing, or if the network lacks a layer that it names.
    pub fn new(experiment: &'a Experiment, network: Sized, real: Real, lengths: Option<Lengths>) -> Result<Case<'a>> {
        let training = experiment.training.as_ref().context("the config has nothing to train")?;
        let (name, longest, checkpoint_bytes) = (network.name.clone(), network.longest, network.checkpoint_bytes);
        let model = network.model(experiment)?;
        let subspace = training.subspace.spec.build(&*model.network, &model.base, &model.head)?;
        Ok(Case { experiment, training, name, model, longest, subspace, real, lengths, checkpoint_bytes })
    }

    pub fn parameters(&self) -> i64 {
        self.subspace.layout().parameters()
    }

    pub fn particles(&self) -> i64 {
        self.training.method.spec.particles()
    }

    /// Returns about how many bytes are saved of the predictions of a test sample.
    pub fn saved_bytes(&self) -> u64 {
        self.experiment.task.saved_bytes(self.members() as u64, self.model.head.classes() as u64)
    }

    /// Returns the number of members that predict.
    pub fn members(&self) -> i64 {
        let each = match self.training.method.spec.predictive() {
            Predictive::Draws(draws) | Predictive::Linearised(Output::Tangent, draws) => draws as i64,
            // The Gaussian of a number is in closed form.
            Predictive::Linearised(Output::Mc, draws) if self.experiment.task.has_classes() => draws as i64,
            Predictive::Particles | Predictive::Mean | Predictive::Linearised(..) => 1,
        };
        self.rows() * each
    }

    /// Returns the number of rows of the posterior that training leaves.
    fn rows(&self) -> i64 {
        self.training.method.spec.rows_after(self.real.steps)
    }

    /// Returns whether the logits are those of a linearised network, which has no weights to attack.
    pub fn is_linearised(&self) -> bool {
        matches!(self.training.method.spec.predictive(), Predictive::Linearised(..))
    }

    /// Returns the operations of a pass over samples, forward and for gradients.
    fn work(&self, particles: i64, samples: &Samples, from_stage: Option<usize>, reads: Reads) -> Work {
        let (layout, classes) = (self.subspace.layout(), self.model.head.classes());
        let known = self.lengths.as_ref().filter(|_| !samples.kept);
        let own = |most| known.map_or(most, |known| known.tokens(samples.split, reads, samples.batch));
        let sample = Sample { tokens: self.longest.tokens.map(own), ..self.longest };
        let pass = Pass { layout, classes, particles, images: samples.count, own_images: samples.own, from_stage };
        Counting { network: &*self.model.network, base: &self.model.base, sample, reads, pass }.work()
    }

    /// Returns what training and validation read of a sample of a split.
    fn learnt(&self, split: SplitName, batch: usize) -> Reads {
        match (self.experiment.task.written(), &self.lengths) {
            (Some(_), Some(lengths)) => Reads::Answer(lengths.answer(split, batch)),
            _ => Reads::Classes,
        }
    }

    /// Returns the first trained stage, if what enters it is kept for all epochs.
    fn kept_from(&self) -> Option<usize> {
        let first = self.model.network.first_stage(self.subspace.layout());
        let cache = self.training.train.prefix_cache;
        let is_augmented = self.experiment.data.augment.is_some();
        let is_kept = self.training.why_no_prefix(is_augmented).is_none() && cache != PrefixCache::Off;
        let entering = self.model.network.entering(first);
        let values: i64 = entering.values().map(|shape| shape.iter().product::<i64>()).sum();
        let bytes = values as u64 * self.real.train as u64 * self.model.kind.elt_size_in_bytes() as u64;
        let fits = cache != PrefixCache::Auto || has_room(bytes, 0);
        (first > 0 && is_kept && fits).then_some(first)
    }

    /// Returns the share of `passes` passes over `images` images in which they are decoded: all of them, or the first where
    /// they are kept.
    fn decoded(&self, images: usize, passes: f64) -> f64 {
        let (dataset, side) = (&*self.experiment.data.dataset, self.longest.side);
        let Some(side) = side.filter(|_| dataset.resize().is_some()) else { return 0.0 };
        let kept = images as u64 * (3 * side * side) as u64 <= KEPT_IN_MEMORY || self.experiment.data.cache.is_some();
        images as f64 * if kept { 1.0 } else { passes }
    }

    /// Returns the operations of a training step with all gradients that it asks for, and with activations that are computed
    /// again.
    pub fn step(&self) -> f64 {
        let Training { train, method, optimizer, .. } = self.training;
        let (batch, split) = (train.batch_size, SplitName::Train);
        let (from, own) = (self.kept_from(), train.batches == Batches::Independent);
        let samples = Samples { count: batch as i64, split, batch, own, kept: from.is_some() };
        let work = self.work(self.particles(), &samples, from, self.learnt(split, batch));
        let again = if train.recompute { self.again(&samples) } else { 0.0 };
        (work.total() + again) * (method.spec.gradients_of_a_step() + optimizer.spec.gradients_of_a_step()) as f64
    }

    /// Returns the operations of the forward pass from the first trained stage on.
    fn again(&self, samples: &Samples) -> f64 {
        let first = self.model.network.first_stage(self.subspace.layout());
        let reads = self.learnt(samples.split, samples.batch);
        self.work(self.particles(), samples, (first > 0).then_some(first), reads).forward
    }

    pub fn training(&self) -> Part {
        let train = &self.training.train;
        let (from, reads) = (self.kept_from(), self.learnt(SplitName::Train, train.batch_size));
        let own = train.batches == Batches::Independent;
        let count = self.real.train as i64;
        let samples =
            Samples { count, split: SplitName::Train, batch: train.batch_size, own: false, kept: from.is_some() };
        let filling = from.map_or(0.0, |from| {
            let of = |from| self.work(1, &samples, from, reads).forward;
            of(None) - of(Some(from))
        });
        let passes = if from.is_some() { 1 } else { self.real.epochs };
        // With orders of their own, particles want the images of an epoch at different times.
        let orders = if own && from.is_none() { self.particles() as usize } else { 1 };
        let decoded = self.decoded(self.real.train, (passes * orders) as f64);
        Part { flop: self.real.steps as f64 * self.step() + filling, decoded }
    }

    /// Returns the predictions of the likelihood of held-out samples after each epoch, by the rows of the posterior that are there by then.
    pub fn validation(&self) -> Part {
        let Real { validation, steps, epochs, .. } = self.real;
        let mut with_rows = BTreeMap::new();
        for epoch in 1..=epochs {
            *with_rows.entry(self.training.method.spec.rows_after(steps / epochs * epoch)).or_insert(0) += 1;
        }
        let parts = with_rows.into_iter().map(|(rows, epochs)| self.prediction(epochs * validation, rows));
        parts
            .fold(Part::default(), |all, part| Part { flop: all.flop + part.flop, decoded: all.decoded + part.decoded })
    }

    /// Returns a prediction of the likelihood of samples as long as those of training.
    fn prediction(&self, images: usize, members: i64) -> Part {
        let batch = self.training.train.eval_batch_size;
        self.forward(images, SplitName::Train, members, self.learnt(SplitName::Train, batch))
    }

    /// Returns the evaluation of test samples by all members. Gaussian logits take passes around each particle, but none for each draw.
    pub fn evaluation(&self, images: usize) -> Part {
        if !self.is_linearised() {
            return self.drawn(images);
        }
        let classes = self.model.head.classes();
        let Passes { forward, backward } =
            self.training.method.spec.post_hoc().map_or(Passes::default(), |fitted| fitted.passes(classes));
        let batch = self.training.train.eval_batch_size;
        let samples = Samples { count: images as i64, split: SplitName::Test, batch, own: false, kept: false };
        let one = self.work(1, &samples, None, Reads::Classes);
        let flop = (1 + forward) as f64 * one.forward + backward as f64 * one.backward;
        Part { flop: self.rows() as f64 * flop, decoded: self.decoded(images, 1.0) }
    }

    /// Returns the evaluation by members with weights, which write the answers if they are free.
    fn drawn(&self, images: usize) -> Part {
        let reads = match self.experiment.task.written() {
            Some(most) => Reads::Writes(self.lengths.as_ref().map_or(most as i64, |lengths| lengths.written(most))),
            None => Reads::Classes,
        };
        self.forward(images, SplitName::Test, self.members(), reads)
    }

    fn forward(&self, images: usize, split: SplitName, members: i64, reads: Reads) -> Part {
        let batch = self.training.train.eval_batch_size;
        let samples = Samples { count: images as i64, split, batch, own: false, kept: false };
        Part { flop: self.work(members, &samples, None, reads).forward, decoded: self.decoded(images, 1.0) }
    }

    /// Returns the bytes of the frozen weights.
    pub fn weights_bytes(&self) -> u64 {
        self.model.base.bytes(self.model.kind)
    }

    /// Returns the split of a step, and its bytes with the weights.
    pub fn memory(&self, machine: &Machine) -> Within {
        let weights = self.weights_bytes();
        let Real { train, validation, .. } = self.real;
        let step = Step::of(self.training, &self.model, self.subspace.layout(), Images { train, validation });
        let Within { cut, bytes } = step.within(machine.memory.saturating_sub(weights));
        Within { cut, bytes: bytes + weights }
    }

    /// Returns the bytes of the checkpoint, the posterior and the resume file.
    pub fn stored_bytes(&self) -> u64 {
        let layout = self.subspace.layout();
        self.checkpoint_bytes + state_bytes(self.training, layout) + 2 * posterior_bytes(self.training, layout)
    }
}
