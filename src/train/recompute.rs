//! Gradients that keep only the input of each stage and recompute the rest in the backward pass (Chen et al. 2016,
//! arXiv 1604.06174). Memory holds the activations of one stage instead of all, at the cost of one more forward pass.

use anyhow::Result;
use tch::{Kind, Tensor, no_grad};

use super::gradient::{Backward, Gradient, Pass};
use crate::data::Fields;
use crate::model::Input;

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
        let mut flowing = sums.back(&values.sum(values.kind()), Some(last.first()))?;
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
