//! Gradients that keep what enters each stage, and compute the rest again on the way back (Chen et al. 2016, arXiv
//! 1604.06174): memory for one stage's activations instead of all, for one more forward.

use anyhow::Result;
use tch::{Kind, Tensor, no_grad};

use super::mixing::Forward;
use crate::model::network::Weights;
use crate::model::{Input, Model};

/// A forward in segments: what comes before the first trained stage, each stage, the readout with the head.
pub struct Segments<'a> {
    pub model: &'a Model,
    pub weights: &'a Weights<'a>,
    pub forward: Forward<'a>,
    /// The first trained stage.
    pub first: usize,
}

impl Segments<'_> {
    /// What `objective` makes of the logits `[p, B, C]`, and the gradients of its sum by `leaves`; undefined for those that
    /// it does not depend on.
    ///
    /// # Errors
    /// Those of libtorch; an objective that depends on no leaf.
    pub fn gradients(
        &self,
        input: &Input,
        leaves: &[&Tensor],
        objective: impl Fn(&Tensor) -> Tensor,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let network = &*self.model.network;
        let (start, first) = match input {
            Input::Entering(values, stage) => (values.shallow_clone(), *stage),
            samples => (network.enter_at(self.weights, self.first, &self.model.prepared(samples)?), self.first),
        };
        let mut entered = vec![start.detach()];
        no_grad(|| {
            for stage in first..network.stages() {
                let x = entered[entered.len() - 1].shallow_clone();
                entered.push(network.stage(self.weights, stage, x));
                self.forward.forget();
            }
        });
        let found = leaves.iter().map(|_| Tensor::new()).collect();
        let mut sums = Sums { forward: &self.forward, leaves, found };
        let last = entered.pop().unwrap_or_else(|| start.detach()).detach().set_requires_grad(true);
        let values = objective(&self.model.head.logits(self.weights, &network.features(self.weights, &last)));
        let mut flowing = sums.back(&values.sum(values.kind()), Some(&last))?;
        for (stage, x) in (first..network.stages()).zip(entered).rev() {
            let x = x.detach().set_requires_grad(true);
            let left = network.stage(self.weights, stage, x.shallow_clone());
            flowing = sums.back(&against(&left, &flowing), Some(&x))?;
        }
        if start.requires_grad() {
            let _ = sums.back(&against(&start, &flowing), None)?;
        }
        Ok((values.detach(), sums.found))
    }
}

/// A root whose gradient by `values` is `gradient`.
fn against(values: &Tensor, gradient: &Tensor) -> Tensor {
    (values * gradient).sum(Kind::Float)
}

/// Gradients of the segments so far.
struct Sums<'a> {
    forward: &'a Forward<'a>,
    leaves: &'a [&'a Tensor],
    found: Vec<Tensor>,
}

impl Sums<'_> {
    /// One segment back from `root`: adds to the leaves' gradients; returns that of what entered the segment.
    fn back(&mut self, root: &Tensor, entered: Option<&Tensor>) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = entered.into_iter().chain(self.leaves.iter().copied()).collect();
        let mut gradients = self.forward.back(root, &inputs)?.into_iter();
        let flowing = entered.and_then(|_| gradients.next()).unwrap_or_default();
        for (sum, gradient) in self.found.iter_mut().zip(gradients).filter(|(_, gradient)| gradient.defined()) {
            *sum = if sum.defined() { &*sum + gradient } else { gradient };
        }
        Ok(flowing)
    }
}
