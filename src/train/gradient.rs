//! The gradient of a training step: one forward and one backward pass of some particles on some samples.

use anyhow::{Result, ensure};
use tch::Tensor;

use super::likelihood::Likelihood;
use super::mixing::{Forward, Mixing};
use super::recompute::Segments;
use super::slice::Slice;
use crate::methods::Output;
use crate::model::network::Weights;

/// The number of each particle whose gradient is taken.
#[derive(Clone, Copy)]
pub(super) enum Root<'a> {
    /// The mean cross-entropy of the batch.
    Loss,
    /// The product of an output with given numbers, `[k, b, C]` for the k rows and b samples of this process.
    Product(Output, &'a Tensor),
}

/// One forward and one backward pass.
pub(super) struct Pass<'a> {
    /// The batch, and the network with its head.
    pub likelihood: &'a Likelihood<'a>,
    /// The weights of the particles of the slice, attached to the leaves.
    pub weights: Weights<'a>,
    pub slice: Slice,
    pub root: Root<'a>,
    /// The sum of the mixed gradients, if gradients are mixed.
    pub mixing: Option<&'a Mixing<'a>>,
}

/// The result of a pass.
pub(super) struct Gradient {
    /// The value of each particle, `[k]`.
    pub values: Tensor,
    /// The gradient of the sum of the values with respect to each leaf; undefined for one that it does not depend on.
    pub by_leaves: Vec<Tensor>,
}

impl Pass<'_> {
    /// Runs the pass.
    ///
    /// # Errors
    /// Fails if libtorch fails, or if the values depend on no leaf.
    pub fn gradient(mut self, leaves: &[&Tensor]) -> Result<Gradient> {
        let Likelihood { model, subspace, passes, input, .. } = self.likelihood;
        let input = input.map(|t| self.slice.of(t));
        let mixed = self.mixing.map(|mixing| mixing.forward(&mut self.weights, self.slice));
        let mixed = mixed.as_ref();
        if passes.recompute {
            let first = model.network.first_stage(subspace.layout());
            return Segments { pass: &self, mixed, leaves, first }.gradient(&input);
        }
        let features = model.features_of(&self.weights, &input)?;
        let values = self.values(&features);
        let by_leaves = backward(&values.sum(values.kind()), leaves, mixed)?;
        Ok(Gradient { values: values.detach(), by_leaves })
    }

    /// Returns the values `[k]`, given the features `[k, b, d]` of the slice, or `[1, b, d]` if particles share them.
    pub fn values(&self, features: &Tensor) -> Tensor {
        let (slice, head) = (&self.slice, &self.likelihood.model.head);
        let kind = head.weight.kind();
        match self.root {
            Root::Loss => {
                let losses = head.losses(&self.weights, features, &slice.of(&self.likelihood.labels));
                losses.expand([slice.count, -1], false).mean_dim([1i64].as_slice(), false, kind) * slice.weight
            }
            Root::Product(output, by_output) => {
                let values = match output {
                    Output::Logits => head.logits(&self.weights, features),
                    Output::Features => head.inputs(features),
                };
                let by_output = by_output.narrow(0, slice.start, slice.count).narrow(1, slice.from, slice.samples);
                (values * by_output.to_kind(kind)).sum_dim_intlist([1i64, 2].as_slice(), false, kind)
            }
        }
    }
}

/// Returns the gradients of `root` with respect to `leaves`; those of leaves that it does not depend on are undefined.
/// The gradients of layers that a forward pass has recorded for mixing are mixed.
///
/// # Errors
/// Fails if libtorch fails, or if the root depends on no leaf.
pub(super) fn backward(root: &Tensor, leaves: &[&Tensor], mixed: Option<&Forward>) -> Result<Vec<Tensor>> {
    // Running backward from a tensor without a graph would cause a segmentation fault.
    ensure!(root.requires_grad(), "the loss does not depend on any trainable parameter");
    match mixed {
        Some(forward) => forward.backward(root, leaves),
        None => Ok(Tensor::f_run_backward(&[root], leaves, false, false)?),
    }
}
