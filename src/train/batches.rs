//! The batches of a training: which samples each process sees in which step, and the input of the network for them.

use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use tch::Tensor;

use super::context::Context;
use super::context::Material;
use super::gradient::Passes;
use super::particles::Progress;
use super::prefix::Prefix;
use crate::data::order::epoch_order;
use crate::experiment::{self, TrainSpec};
use crate::machine::parallel::Shard;
use crate::model::Input;

/// The share of one batch that this process computes.
pub(super) struct TrainBatch {
    /// The input of the network, `[p, b, …]`, for p data orders.
    pub input: Input,
    /// The labels, `[p, b, …]`.
    pub labels: Tensor,
    /// The number of samples in the whole batch, B.
    pub size: usize,
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
        let sizes: Vec<usize> = steps.clone().map(|step| self.range(step).len()).collect();
        let (plan, set, orders) = (self.plan(progress.epoch, steps), &self.material.train, self.orders());
        let count = orders.len() as i64;
        let several = move |t: &Tensor| t.unflatten(0, [count, t.size()[0] / count].as_slice());
        match self.prefix.clone() {
            Some(prefix) => Box::new(plan.into_iter().zip(sizes).map(move |(indices, size)| {
                let labels = several(&set.labels(&indices));
                Ok(TrainBatch {
                    input: Input::Entering(prefix.values(&indices)?.of_particles(count), prefix.stage),
                    labels,
                    size,
                })
            })),
            None => {
                let batches = set.training_batches(plan, progress.epoch as u64, orders);
                Box::new(batches.zip(sizes).map(move |(batch, size)| {
                    let batch = batch?;
                    let (input, labels) = (Input::Stored(batch.samples.of_particles(count)), several(&batch.labels));
                    Ok(TrainBatch { input, labels, size })
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

    /// Returns this process's share of the batches of some steps of an epoch, with the samples of all its orders one after
    /// the other.
    fn plan(&self, epoch: usize, steps: Range<usize>) -> Vec<Vec<u32>> {
        let train = &self.material.holdout.train;
        let order = |particle| epoch_order(self.seed, epoch as u64, particle as u64, train.len());
        let orders: Vec<Vec<u32>> = self.orders().map(order).collect();
        let batch = |step: usize| {
            let range = self.range(step);
            let samples = Passes::of(self.spec).samples(self.share, range.len());
            let samples: Vec<usize> = samples.into_iter().flatten().collect();
            let of = |order: &Vec<u32>| -> Vec<u32> {
                samples.iter().map(|sample| train[order[range.start + sample] as usize]).collect()
            };
            orders.iter().flat_map(of).collect()
        };
        steps.map(batch).collect()
    }
}
