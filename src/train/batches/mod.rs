//! The batches of a training: which samples each process sees in which step, the input of the network for them, and the objective that
//! a method is given.

use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use tch::Tensor;

use super::context::{Context, Material};
use super::gradient::Passes;
use super::likelihood::{Learner, Likelihood};
use super::prefix::Prefix;
use super::progress::Progress;
use super::shared::Shared;
use crate::base::tensor::upload;
use crate::data::Fields;
use crate::data::mix::{Mixed, Mixup};
use crate::data::order::{balanced_order, earlier_draws, epoch_order};
use crate::experiment::{self, Sampling, TrainSpec};
use crate::machine::memory::Chunker;
use crate::machine::parallel::{Shard, Sharding};
use crate::model::Input;
use crate::tasks::MixedLabels;

#[cfg(test)]
mod tests;

/// The share of one batch that this process computes.
pub(super) struct TrainBatch {
    /// The input of the network, `[p, b, …]`, for p data orders.
    pub input: Input,
    /// The labels, `[p, b, …]`.
    pub labels: Tensor,
    /// The factors of the losses, `[p]`, if classes have weights.
    pub scale: Option<Tensor>,
    /// The number of samples in the whole batch, B.
    pub size: usize,
}

impl TrainBatch {
    /// Joins the batches of several trainings of `particles` particles each, one after the other. What all of them share stays shared.
    pub fn joined(all: &[&TrainBatch], particles: i64) -> TrainBatch {
        let first = all[0];
        let is_shared = first.labels.size()[0] == 1 && all.iter().all(|batch| std::ptr::eq(*batch, first));
        let rows = |t: &Tensor| {
            let others = [&[particles], &t.size()[1..]].concat();
            if is_shared { t.shallow_clone() } else { t.expand(others, false) }
        };
        let join = |parts: Vec<Tensor>| if is_shared { parts[0].shallow_clone() } else { Tensor::cat(&parts, 0) };
        let inputs: Vec<Input> = all.iter().map(|batch| batch.input.map(rows)).collect();
        let scales: Option<Vec<Tensor>> = all.iter().map(|batch| batch.scale.as_ref().map(rows)).collect();
        TrainBatch {
            input: Input::joined(&inputs, join),
            labels: join(all.iter().map(|batch| rows(&batch.labels)).collect()),
            scale: scales.map(join),
            size: first.size,
        }
    }
}

/// The samples of a batch that this process computes.
struct Planned {
    /// The samples that are read, those of all orders one after the other.
    indices: Vec<u32>,
    /// The number of times that each of them came before in its order of the epoch; empty where no sample comes twice.
    draws: Vec<u32>,
    /// The factor of the losses of each order, which follows from the whole batch.
    scale: Option<Vec<f32>>,
    /// How samples are mixed with each other, if they are.
    mixing: Option<Mixing>,
    /// The number of samples in the whole batch, B.
    size: usize,
}

/// The mixing of the samples of this process with others of the batch.
struct Mixing {
    /// The places of the samples and of their partners among those that are read of an order.
    own: Vec<i64>,
    partners: Vec<i64>,
    /// The numbers of the mixes of the samples of all orders, `[p, b, 6]`.
    mixes: Vec<f32>,
}

/// The samples of all steps.
pub(super) struct Batches<'a> {
    spec: &'a TrainSpec,
    seed: u64,
    material: &'a Material,
    share: &'a Shard,
    /// The pixels per side of the images that the network sees.
    side: i64,
    /// The cached input of the first trained stage, if there is a cache.
    prefix: Option<Rc<Prefix>>,
}

impl<'a> Batches<'a> {
    pub fn new(context: &Context<'a>, share: &'a Shard, prefix: Option<Rc<Prefix>>) -> Batches<'a> {
        let (spec, seed, material) = (context.spec(), context.experiment.seed, context.material);
        let side = context.model().image_side();
        Batches { spec, seed, material, share, side, prefix }
    }

    /// Returns the batches of the current epoch that are left.
    pub fn left_in_epoch(&self, progress: &Progress) -> Box<dyn Iterator<Item = Result<TrainBatch>> + 'a> {
        let steps = progress.step..self.material.batches(self.spec.batch_size);
        let (mut plan, set, orders) = (self.plan(progress.epoch, steps), &self.material.train, self.orders());
        let count = orders.len() as i64;
        match self.prefix.clone() {
            Some(prefix) => Box::new(plan.into_iter().map(move |planned| {
                let values = prefix.values(&planned.indices)?.of_particles(count);
                Ok(planned.batch(Input::Entering(values, prefix.stage), &set.labels(&planned.indices), count))
            })),
            None => {
                let indices = plan.iter().map(|planned| planned.indices.clone()).collect();
                let draws = plan.iter_mut().map(|planned| std::mem::take(&mut planned.draws)).collect();
                let batches = set.training_batches(indices, draws, progress.epoch as u64, orders);
                Box::new(batches.zip(plan).map(move |(batch, planned)| {
                    let batch = batch?;
                    let samples = batch.samples.of_particles(count);
                    Ok(match &planned.mixing {
                        Some(mixing) => planned.mixed(mixing, &samples, &batch.labels),
                        None => planned.batch(Input::Stored(samples), &batch.labels, count),
                    })
                }))
            }
        }
    }

    /// Returns the particles whose data orders this process follows. If all particles share one order, it is that of
    /// the first.
    fn orders(&self) -> Range<usize> {
        match self.spec.batches {
            experiment::Batches::Independent => self.share.rows.clone(),
            experiment::Batches::Shared => 0..1,
        }
    }

    /// Returns the positions in an epoch's order that make up the batch of a step.
    fn range(&self, step: usize) -> Range<usize> {
        step * self.spec.batch_size..((step + 1) * self.spec.batch_size).min(self.material.holdout.train.len())
    }

    /// Returns this process's share of the batches of some steps of an epoch.
    fn plan(&self, epoch: usize, steps: Range<usize>) -> Vec<Planned> {
        let (train, labels) = (&self.material.holdout.train, &self.material.train.split.labels);
        let of_train: Vec<u32> = match self.spec.sampling {
            Sampling::Shuffled => Vec::new(),
            Sampling::Balanced => train.iter().map(|index| labels[*index as usize]).collect(),
        };
        let order = |particle| match self.spec.sampling {
            Sampling::Shuffled => epoch_order(self.seed, epoch as u64, particle as u64, train.len()),
            Sampling::Balanced => balanced_order(self.seed, epoch as u64, particle as u64, &of_train),
        };
        let orders: Vec<Vec<u32>> = self.orders().map(order).collect();
        let draws: Vec<Vec<u32>> = match self.spec.sampling {
            Sampling::Shuffled => Vec::new(),
            Sampling::Balanced => orders.iter().map(|order| earlier_draws(order)).collect(),
        };
        let batch = |step: usize| {
            let range = self.range(step);
            let own = Passes::of(self.spec).samples(self.share, range.len());
            let own: Vec<usize> = own.into_iter().flatten().collect();
            let mixed =
                self.spec.mixup.as_ref().map(|mixup| self.mixing(mixup, [epoch, step], own.clone(), range.len()));
            let (samples, mixing) = mixed.map_or((own, None), |(read, mixing)| (read, Some(mixing)));
            let at = |order: &Vec<u32>, place: usize| train[order[place] as usize];
            let of = |order: &Vec<u32>| -> Vec<u32> {
                samples.iter().map(|sample| at(order, range.start + sample)).collect()
            };
            let own_draws =
                |draws: &Vec<u32>| -> Vec<u32> { samples.iter().map(|sample| draws[range.start + sample]).collect() };
            let scale = |order: &Vec<u32>| {
                let mut labels = range.clone().map(|place| labels[at(order, place) as usize]);
                self.material.loss.as_ref()?.scale(&mut labels).map(|factor| factor as f32)
            };
            Planned {
                indices: orders.iter().flat_map(of).collect(),
                draws: draws.iter().flat_map(own_draws).collect(),
                scale: orders.iter().map(scale).collect(),
                mixing,
                size: range.len(),
            }
        };
        steps.map(batch).collect()
    }

    /// Returns the samples of a batch of `size` that are read so that this process can mix its `own` ones, and how it mixes them. A
    /// process that computes the whole batch reads each of its samples once.
    fn mixing(&self, mixup: &Mixup, [epoch, step]: [usize; 2], own: Vec<usize>, size: usize) -> (Vec<usize>, Mixing) {
        let partners: Vec<usize> = own.iter().map(|sample| size - 1 - sample).collect();
        let mut places = vec![None; size];
        let mut read = Vec::new();
        for &sample in own.iter().chain(&partners) {
            places[sample].get_or_insert_with(|| {
                read.push(sample);
                read.len() as i64 - 1
            });
        }
        let of_order = |particle: usize| {
            let all = mixup.mixes(self.seed, [epoch, step, particle].map(|at| at as u64), (size, self.side));
            own.iter().flat_map(|sample| all[*sample].numbers()).collect::<Vec<f32>>()
        };
        let mixes = self.orders().flat_map(of_order).collect();
        let at = |samples: &[usize]| samples.iter().filter_map(|sample| places[*sample]).collect();
        let mixing = Mixing { own: at(&own), partners: at(&partners), mixes };
        (read, mixing)
    }
}

impl Planned {
    /// Returns the batch of an input with the labels of its samples, in `orders` orders.
    fn batch(&self, input: Input, labels: &Tensor, orders: i64) -> TrainBatch {
        let labels = labels.unflatten(0, [orders, labels.size()[0] / orders].as_slice());
        let scale = self.scale.as_ref().map(|factors| upload(&Tensor::from_slice(factors), labels.device()));
        TrainBatch { input, labels, scale, size: self.size }
    }

    /// Returns the batch of the samples that were read, `[p, K, …]`, mixed with each other.
    fn mixed(&self, mixing: &Mixing, read: &Fields, labels: &Tensor) -> TrainBatch {
        let (orders, device) = (read.length(0), labels.device());
        let labels = labels.unflatten(0, [orders, read.length(1)].as_slice());
        let [own, partners] = [&mixing.own, &mixing.partners].map(|places| upload(&Tensor::from_slice(places), device));
        let of = |values: &Tensor, places: &Tensor| values.index_select(1, places);
        let shape = [orders, mixing.own.len() as i64, 6];
        let mixes = upload(&Tensor::from_slice(&mixing.mixes).view(shape), device);
        let input = Mixed {
            own: read.map(|values| of(values, &own)),
            partners: read.map(|values| of(values, &partners)),
            mixes: mixes.narrow(2, 1, 5),
        };
        let labels = MixedLabels::labels(&of(&labels, &own), &of(&labels, &partners), &mixes.select(2, 0));
        TrainBatch { input: Input::Mixed(input), labels, scale: None, size: self.size }
    }
}

/// Makes the objective of each batch.
pub(super) struct Objectives<'a> {
    learner: Learner<'a>,
    passes: Passes,
    /// The number of particles and images that go through the network at once.
    chunker: Rc<Chunker>,
    sharding: &'a Sharding<'a>,
}

impl<'a> Objectives<'a> {
    pub fn new(context: &Context<'a>, sharding: &'a Sharding<'a>, chunker: Rc<Chunker>) -> Objectives<'a> {
        let (learner, passes) = (context.learner(), Passes::of(context.spec()));
        Objectives { learner, passes, chunker, sharding }
    }

    /// Returns the objective of a batch, whose losses are multiplied by `magnified` on the way back.
    pub fn on(&self, batch: &TrainBatch, magnified: f64) -> Shared<'a> {
        let (input, labels) = (batch.input.map(Tensor::shallow_clone), batch.labels.shallow_clone());
        let own = Likelihood::on(self.learner, self.passes, input, labels);
        let own = match &batch.scale {
            Some(factors) => own.scaled_by(factors),
            None => own,
        };
        let own = own.of_share(self.sharding.share(), batch.size).chunked_by(self.chunker.clone());
        let own = own.magnified_by(magnified);
        Shared { own, sharding: self.sharding }
    }
}
