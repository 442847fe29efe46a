//! The gradient of a training step: one forward and one backward pass of some particles on some samples.
//!
//! [`Segments`] keeps only the input of each stage and recomputes the rest in the backward pass (Chen et al. 2016,
//! arXiv 1604.06174): memory holds the activations of one stage instead of all, at the cost of one more forward pass.

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor, no_grad};

use crate::data::Fields;
use crate::experiment::TrainSpec;
use crate::machine::parallel::Shard;
use crate::methods::Output;
use crate::model::network::Weights;
use crate::model::{Input, Model};
use crate::tasks::Loss;

/// The number of each particle whose gradient is taken.
#[derive(Clone, Copy)]
pub(super) enum Root<'a> {
    /// The mean loss of the batch.
    Loss,
    /// The product of an output with given numbers, `[k, b, C]` for the k rows and b samples of this process.
    Product(Output, &'a Tensor),
}

/// One forward and one backward pass.
pub(super) struct Pass<'a> {
    pub model: &'a Model,
    pub loss: &'a dyn Loss,
    /// The weights of the particles, attached to the leaves.
    pub weights: Weights<'a>,
    /// The input and the labels of the samples.
    pub input: Input,
    pub labels: Tensor,
    /// The factors of the samples' losses, `[p, b]`; `None` if they are 1.
    pub scale: Option<Tensor>,
    pub root: Root<'a>,
    /// The factor of the values on the way back, and so of the gradients.
    pub magnified: f64,
    /// The particles and samples of the step that are passed.
    pub slice: Slice,
}

/// The result of a pass.
pub(super) struct Gradient {
    /// The value of each particle, `[k]`.
    pub values: Tensor,
    /// The gradient of the magnified sum of the values with respect to each leaf; undefined for one that it does not depend on.
    pub by_leaves: Vec<Tensor>,
}

impl Pass<'_> {
    /// Runs the pass.
    ///
    /// # Errors
    /// Fails if libtorch fails, or if the values depend on no leaf.
    pub fn gradient(&self, leaves: &[&Tensor], backward: &dyn Backward) -> Result<Gradient> {
        let values = match self.root {
            Root::Product(Output::InputGradients, by) => self.by_pixels(by)?,
            _ => self.values(&self.model.features_of(&self.weights, &self.input)?),
        };
        let by_leaves = backward.run(&(values.sum(values.kind()) * self.magnified), leaves)?;
        Ok(Gradient { values: values.detach(), by_leaves })
    }

    /// Returns the values `[k]`, given the features `[k, b, d]`, or `[1, b, d]` if particles share them.
    pub fn values(&self, features: &Tensor) -> Tensor {
        let (slice, head) = (&self.slice, &self.model.head);
        let kind = head.weight.kind();
        match self.root {
            Root::Loss => {
                let losses = self.loss.losses(head, &self.weights, features, &self.labels);
                let losses = scaled(losses, self.scale.as_ref());
                losses.expand([slice.count, -1], false).mean_dim([1i64].as_slice(), false, kind) * slice.weight
            }
            Root::Product(output, by_output) => {
                let values = match output {
                    Output::Logits => head.logits(&self.weights, features),
                    Output::Features => head.inputs(features),
                    // Features have no pixels: `gradient` computes them.
                    Output::InputGradients => unreachable!("gradients by pixels follow from no features"),
                };
                let by_output = by_output.narrow(0, slice.start, slice.count).narrow(1, slice.from, slice.samples);
                (values * by_output.to_kind(kind)).sum_dim_intlist([1i64, 2].as_slice(), false, kind)
            }
        }
    }
}

/// Returns losses `[p', b]` times the factors `[p, b]` of their samples.
pub(super) fn scaled(losses: Tensor, factors: Option<&Tensor>) -> Tensor {
    match factors {
        Some(factors) => &losses * factors.to_kind(losses.kind()),
        None => losses,
    }
}

/// A backward pass.
pub(super) trait Backward {
    /// Returns the gradients of `root` with respect to `leaves`; those of leaves that it does not depend on are undefined.
    ///
    /// # Errors
    /// Fails if libtorch fails, or if the root depends on no leaf.
    fn run(&self, root: &Tensor, leaves: &[&Tensor]) -> Result<Vec<Tensor>>;

    /// Forgets a forward pass without a graph.
    fn forget(&self) {}
}

/// A backward pass of which nothing but the gradients is wanted.
pub(super) struct Plain;

impl Backward for Plain {
    fn run(&self, root: &Tensor, leaves: &[&Tensor]) -> Result<Vec<Tensor>> {
        // Running backward from a tensor without a graph would cause a segmentation fault.
        ensure!(root.requires_grad(), "the loss does not depend on any trainable parameter");
        Ok(Tensor::f_run_backward(&[root], leaves, false, false)?)
    }
}

/// The split of a step into passes. Losses and gradients depend on it only through rounding.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// The number of particles in one forward pass; 0 for all.
    pub particle_chunk: usize,
    /// The number of parts of a batch.
    pub accumulate: usize,
    /// Whether activations are recomputed in the backward pass.
    pub recompute: bool,
}

impl Passes {
    /// All particles and the whole batch in one forward pass.
    pub const WHOLE: Passes = Passes { particle_chunk: 0, accumulate: 1, recompute: false };

    /// Returns the split that a config asks for. How many particles go through the network at once is planned.
    pub fn of(spec: &TrainSpec) -> Passes {
        Passes { particle_chunk: 0, accumulate: spec.accumulate.parts(), recompute: spec.recompute }
    }

    /// Returns the samples of this process in each part of a batch.
    pub fn samples(&self, share: &Shard, batch: usize) -> Vec<Range<usize>> {
        share.samples(batch, batch.div_ceil(self.accumulate))
    }
}

/// The part of a batch that goes through the network at once: some particles on some samples.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    /// The number of the first particle.
    pub particle: i64,
    /// The row of that particle among those in this process.
    pub start: i64,
    /// The number of particles.
    pub count: i64,
    /// The first sample and the number of samples.
    pub from: i64,
    pub samples: i64,
    /// The weight of these samples in the loss of the whole batch.
    pub weight: f64,
}

impl Slice {
    /// Returns the particles and samples of the slice in `[p, b, …]`, where p = 1 if all particles have the same.
    pub fn of(&self, tensor: &Tensor) -> Tensor {
        let rows = match tensor.size()[0] {
            1 => tensor.shallow_clone(),
            _ => tensor.narrow(0, self.start, self.count),
        };
        rows.narrow(1, self.from, self.samples)
    }
}

/// A pass in segments: up to the first trained stage, each stage, and the readout with the head.
pub(super) struct Segments<'a> {
    pub pass: &'a Pass<'a>,
    pub backward: &'a dyn Backward,
    pub leaves: &'a [&'a Tensor],
    /// The first trained stage.
    pub first: usize,
}

impl Segments<'_> {
    /// Runs the pass.
    ///
    /// # Errors
    /// Fails if libtorch fails, or if the values depend on no leaf.
    pub fn gradient(&self) -> Result<Gradient> {
        let Segments { pass, backward, leaves, .. } = *self;
        let (model, weights) = (pass.model, &pass.weights);
        let network = &*model.network;
        let (start, first) = match &pass.input {
            Input::Entering(values, stage) => (values.again(), *stage),
            samples => (network.enter_at(weights, self.first, &model.prepared(samples)?), self.first),
        };
        let mut entered = vec![start.detach()];
        no_grad(|| {
            for stage in first..network.stages() {
                let x = entered[entered.len() - 1].again();
                entered.push(network.stage(weights, stage, x));
                backward.forget();
            }
        });
        let found = leaves.iter().map(|_| Tensor::new()).collect();
        let mut sums = Sums { backward, leaves, found };
        let last = leaf(&entered.pop().unwrap_or_else(|| start.detach()));
        let values = pass.values(&network.features(weights, &last));
        let mut flowing = sums.back(&(values.sum(values.kind()) * pass.magnified), Some(last.first()))?;
        for (stage, x) in (first..network.stages()).zip(entered).rev() {
            let x = leaf(&x);
            let left = network.stage(weights, stage, x.again());
            flowing = sums.back(&against(left.first(), &flowing), Some(x.first()).filter(|x| x.requires_grad()))?;
        }
        if start.first().requires_grad() {
            let _ = sums.back(&against(start.first(), &flowing), None)?;
        }
        Ok(Gradient { values: values.detach(), by_leaves: sums.found })
    }
}

/// Returns what enters a stage as the start of a graph: gradients flow through the first value, unless it holds the ids of
/// tokens.
fn leaf(entered: &Fields) -> Fields {
    let entered = entered.detach();
    if entered.first().is_floating_point() {
        let _ = entered.first().set_requires_grad(true);
    }
    entered
}

/// Returns a root whose gradient with respect to `values` is `gradient`.
fn against(values: &Tensor, gradient: &Tensor) -> Tensor {
    (values * gradient).sum(Kind::Float)
}

/// The gradients summed over the segments so far.
struct Sums<'a> {
    backward: &'a dyn Backward,
    leaves: &'a [&'a Tensor],
    found: Vec<Tensor>,
}

impl Sums<'_> {
    /// Runs one segment backward from `root`. It adds to the gradients of the leaves and returns that of the segment's
    /// input.
    fn back(&mut self, root: &Tensor, entered: Option<&Tensor>) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = entered.into_iter().chain(self.leaves.iter().copied()).collect();
        let mut gradients = self.backward.run(root, &inputs)?.into_iter();
        let flowing = entered.and_then(|_| gradients.next()).unwrap_or_default();
        for (sum, gradient) in self.found.iter_mut().zip(gradients).filter(|(_, gradient)| gradient.defined()) {
            *sum = if sum.defined() { &*sum + gradient } else { gradient };
        }
        Ok(flowing)
    }
}
