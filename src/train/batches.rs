//! The batches of a training: which samples each process sees in which step, and the input of the network for them.

use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use tch::Tensor;

use super::context::{Context, Material};
use super::gradient::Passes;
use super::particles::Progress;
use super::prefix::Prefix;
use crate::base::tensor::upload;
use crate::data::order::{balanced_order, epoch_order};
use crate::experiment::{self, Sampling, TrainSpec};
use crate::machine::parallel::Shard;
use crate::model::Input;

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

/// The samples of a batch that this process computes, those of all its orders one after the other.
struct Planned {
    indices: Vec<u32>,
    /// The factor of the losses of each order, which follows from the whole batch.
    scale: Option<Vec<f32>>,
    /// The number of samples in the whole batch, B.
    size: usize,
}

/// The samples of all steps.
pub(super) struct Batches<'a> {
    spec: &'a TrainSpec,
    seed: u64,
    material: &'a Material,
    share: &'a Shard,
    /// The cached input of the first trained stage, if there is a cache.
    prefix: Option<Rc<Prefix>>,
}

impl<'a> Batches<'a> {
    pub fn new(context: &Context<'a>, share: &'a Shard, prefix: Option<Prefix>) -> Batches<'a> {
        let (spec, seed, material) = (context.spec(), context.experiment.seed, context.material);
        Batches { spec, seed, material, share, prefix: prefix.map(Rc::new) }
    }

    /// Returns the batches of the current epoch that are left.
    pub fn left_in_epoch(&self, progress: &Progress) -> Box<dyn Iterator<Item = Result<TrainBatch>> + 'a> {
        let steps = progress.step..self.material.batches(self.spec.batch_size);
        let (plan, set, orders) = (self.plan(progress.epoch, steps), &self.material.train, self.orders());
        let count = orders.len() as i64;
        let several = move |t: &Tensor| t.unflatten(0, [count, t.size()[0] / count].as_slice());
        let made = move |input, labels: &Tensor, scale: Option<Vec<f32>>, size| {
            let scale = scale.map(|factors| upload(&Tensor::from_slice(&factors), labels.device()));
            TrainBatch { input, labels: several(labels), scale, size }
        };
        match self.prefix.clone() {
            Some(prefix) => Box::new(plan.into_iter().map(move |Planned { indices, scale, size }| {
                let input = Input::Entering(prefix.values(&indices)?.of_particles(count), prefix.stage);
                Ok(made(input, &set.labels(&indices), scale, size))
            })),
            None => {
                let (indices, rest): (Vec<_>, Vec<_>) =
                    plan.into_iter().map(|planned| (planned.indices, (planned.scale, planned.size))).unzip();
                let batches = set.training_batches(indices, progress.epoch as u64, orders);
                Box::new(batches.zip(rest).map(move |(batch, (scale, size))| {
                    let batch = batch?;
                    Ok(made(Input::Stored(batch.samples.of_particles(count)), &batch.labels, scale, size))
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
        let batch = |step: usize| {
            let range = self.range(step);
            let samples = Passes::of(self.spec).samples(self.share, range.len());
            let samples: Vec<usize> = samples.into_iter().flatten().collect();
            let at = |order: &Vec<u32>, place: usize| train[order[place] as usize];
            let of = |order: &Vec<u32>| -> Vec<u32> {
                samples.iter().map(|sample| at(order, range.start + sample)).collect()
            };
            let scale = |order: &Vec<u32>| {
                let labels = range.clone().map(|place| labels[at(order, place) as usize]);
                self.material.recipe.as_ref()?.scale(labels).map(|factor| factor as f32)
            };
            Planned {
                indices: orders.iter().flat_map(of).collect(),
                scale: orders.iter().map(scale).collect(),
                size: range.len(),
            }
        };
        steps.map(batch).collect()
    }
}
