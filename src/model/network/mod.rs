//! The door for networks. A [`Network`] turns weights and samples into features for all particles at once; everything
//! above this module (subspaces, methods, training, prediction, Laplace, evaluation) knows this trait and no network by name.
//!
//! A forward goes through stages: [`Network::enter`] makes from prepared samples what enters stage 0, each
//! [`Network::stage`] takes that to the next one, and [`Network::features`] reads the features off what leaves the last.
//! Between stages a value is a tensor `[p, B, …]`, with p = 1 until the first layer in which particles differ and p = n
//! after it. What enters a stage can be cached (where nothing below it is trained) or kept for recomputation.
//!
//! A new network implements the trait, reads its weights through [`Weights`] by name, and lists the layers that can be
//! adapted as [`Slot`]s.

pub mod low_rank;
mod parameters;
pub mod weights;

use tch::{Kind, Tensor};

use crate::machine::memory::Need;

pub use parameters::Parameters;
pub use weights::Weights;

/// Parameters of the head begin with this; they are no network's.
const HEAD: &str = "head.";

/// A layer that particles can adapt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Canonical name, such as `blocks.3.mlp.fc`; its parameters are `<name>.weight` and `<name>.bias`.
    pub name: String,
    /// What it is called in `subspace.low-rank.targets`: the same for that layer of every block, such as `mlp.fc`.
    pub target: String,
    pub kind: SlotKind,
    /// Numbers that come in for each token.
    pub inputs: i64,
    /// Numbers that go out for each token.
    pub outputs: i64,
    /// The stage of the forward that uses it.
    pub stage: usize,
}

/// What a slot computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// x Wᵀ + b on the last axis.
    Linear,
    /// A convolution with 1 × 1 kernels, which is linear in the channels.
    Pointwise,
    /// Another weight, which has no low-rank update.
    Other,
}

/// The graph that a pass keeps for the way back.
#[derive(Clone, Copy)]
pub enum Graph<'a> {
    /// None: a prediction.
    None,
    /// Down to the samples, through fixed weights, for so many budgets: an attack.
    Samples { budgets: usize },
    /// Down to the trained layers. With `recompute`, only what enters each stage is kept. With `own_samples`, each member
    /// sees samples of its own.
    Weights { trained: &'a dyn Trained, recompute: bool, own_samples: bool },
}

/// What is trained of a network.
pub trait Trained {
    /// The names of the trained parameters.
    fn names(&self) -> Vec<&str>;

    /// Whether a parameter whose name starts with `prefix` is trained.
    fn reaches(&self, prefix: &str) -> bool {
        self.names().iter().any(|name| name.starts_with(prefix))
    }
}

/// What turns weights and samples into features, for all particles at once.
pub trait Network {
    /// The layers that can be adapted, in the order of the forward.
    fn slots(&self) -> Vec<Slot>;

    /// The number of stages, at least 1.
    fn stages(&self) -> usize;

    /// The first stage that parameter `name` has an effect on; [`stages`](Self::stages) for one of the readout.
    fn stage_of(&self, name: &str) -> usize;

    /// d, the width of the features.
    fn width(&self) -> i64;

    /// The shape of what enters a stage, for one sample; what a cache of it holds.
    fn entering(&self, stage: usize) -> Vec<i64>;

    /// What enters stage 0, `[p', B, …]`, from prepared samples `[p, B, …]`.
    fn enter(&self, weights: &Weights, samples: &Tensor) -> Tensor;

    /// What leaves stage `stage`, `[p', B, …]`, from what enters it, `[p, B, …]`.
    fn stage(&self, weights: &Weights, stage: usize, x: Tensor) -> Tensor;

    /// Features `[p', B, d]` from what leaves the last stage.
    fn features(&self, weights: &Weights, x: &Tensor) -> Tensor;

    /// The memory of a pass in a compute type, for each sample and for each sample of each member.
    fn need(&self, graph: Graph, kind: Kind) -> Need;

    /// What enters stage `stage`, `[p', B, …]`, from prepared samples `[p, B, …]`.
    fn enter_at(&self, weights: &Weights, stage: usize, samples: &Tensor) -> Tensor {
        (0..stage).fold(self.enter(weights, samples), |x, stage| self.stage(weights, stage, x))
    }

    /// Features `[p', B, d]` from prepared samples `[p, B, …]`.
    fn forward(&self, weights: &Weights, samples: &Tensor) -> Tensor {
        self.features_from(weights, 0, self.enter(weights, samples))
    }

    /// Features `[p', B, d]` from what enters stage `stage`.
    fn features_from(&self, weights: &Weights, stage: usize, x: Tensor) -> Tensor {
        let x = (stage..self.stages()).fold(x, |x, stage| self.stage(weights, stage, x));
        self.features(weights, &x)
    }

    /// The first stage that a trained parameter has an effect on: what enters it is the same for all particles.
    fn first_stage(&self, trained: &dyn Trained) -> usize {
        let stage = |name: &&str| if name.starts_with(HEAD) { self.stages() } else { self.stage_of(name) };
        trained.names().iter().map(stage).min().unwrap_or(self.stages())
    }
}
