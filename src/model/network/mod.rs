//! The interface of networks. A [`Network`] turns weights and samples into features for all particles at once.
//! Everything above this module (subspaces, methods, training, prediction, Laplace, evaluation) uses only this trait
//! and names no network.
//!
//! A forward pass runs through stages: [`Network::enter`] turns prepared samples into the input of stage 0, each
//! [`Network::stage`] turns its input into the input of the next stage, and [`Network::features`] computes the features
//! from the output of the last stage. Samples, and the values between stages, are tensors by name ([`Fields`]), `[p, B, …]`
//! with p = 1 before the first layer in which particles differ and p = n after it. Gradients flow through the first of them; the
//! others follow from the samples alone, such as a mask. The input of a stage can be cached (if nothing below it is trained) or
//! kept for recomputation.
//!
//! A new network implements the trait and lists the layers that can be adapted as [`Slot`]s. One that writes its pass over
//! [operations](ops) is exported, planned and counted by it; any other reads its weights by name through [`Weights`].

mod autoregressive;
mod kept;
mod layers;
pub mod low_rank;
pub mod ops;
mod parameters;
mod weights;

use tch::{Kind, Tensor};

use crate::data::Fields;
use crate::machine::memory::MemoryEstimate;
use ops::Written;

pub use autoregressive::{Autoregressive, Memory, Prompted};
pub use kept::KeptPass;
pub use layers::{Linear, Norm, Param, RmsNorm, Tap, Tape};
pub use parameters::{Parameters, Weight, expect_finite};
pub use weights::Weights;

/// The name of the value between the stages of a network that has one value there.
pub const HIDDEN: &str = "hidden";

/// The prefix of the head's parameters, which belong to no network.
pub const HEAD: &str = "head.";

/// A layer that particles can adapt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The canonical name, such as `blocks.3.mlp.fc`. The parameters are `<name>.weight` and `<name>.bias`.
    pub name: String,
    /// The name in `subspace.low-rank.targets`, such as `mlp.fc`. It is the same for that layer in every block.
    pub target: String,
    pub kind: SlotKind,
    /// The number of inputs per token.
    pub inputs: i64,
    /// The number of outputs per token.
    pub outputs: i64,
    /// The stage that uses the layer.
    pub stage: usize,
}

impl Slot {
    /// Returns the linear layer `target` of block `stage`, where each block is a stage.
    pub fn of_block(stage: usize, target: &str, inputs: i64, outputs: i64) -> Slot {
        let name = format!("blocks.{stage}.{target}");
        Slot { name, target: target.to_string(), kind: SlotKind::Linear, inputs, outputs, stage }
    }

    /// Returns the same linear layers (target, inputs, outputs) of each of `blocks` blocks, where each block is a stage.
    pub fn of_blocks(blocks: usize, layers: &[(&str, i64, i64)]) -> Vec<Slot> {
        let of =
            |stage| layers.iter().map(move |&(target, inputs, outputs)| Slot::of_block(stage, target, inputs, outputs));
        (0..blocks).flat_map(of).collect()
    }

    /// Returns whether the layer of a network that bella computes is one of a block, be it of an image tower.
    pub fn is_in_block(&self) -> bool {
        self.name.contains("blocks.")
    }
}

/// Returns the names of the linear layers of blocks, which may be quantised; those in front of and behind the blocks are not.
pub fn quantisable(network: &dyn Network) -> Vec<String> {
    let inside = |slot: &Slot| slot.kind == SlotKind::Linear && slot.is_in_block();
    network.slots().into_iter().filter(inside).map(|slot| slot.name).collect()
}

/// The networks whose passes do not record single layers ([`Network::records_layers`]), in words.
pub const UNRECORDED: &str =
    "neither a module (checkpoint.kind = \"module\") nor a network whose blocks share layers (ALBERT)";

/// Returns whether a layer lies outside of all blocks, also of those of an image tower.
pub fn is_outside(network: &dyn Network, slot: &Slot) -> bool {
    network.block_of(slot).is_none() && !slot.is_in_block()
}

/// Returns whether the blocks of a network are so large that clearing the pages of a tensor takes little beside the operation that
/// computes the tensor.
pub fn has_large_blocks(base: &Parameters, blocks: usize) -> bool {
    /// The weights from which a block is large; a block of width 4096 has about 200 million.
    const LARGE: usize = 100_000_000;
    base.count() / blocks.max(1) >= LARGE
}

/// Returns the number of the block that a parameter such as `blocks.3.mlp.fc.weight` belongs to; `None` for one of no block.
pub fn block_of(name: &str) -> Option<usize> {
    name.strip_prefix("blocks.")?.split('.').next()?.parse().ok()
}

/// The methods of a [`Network`] whose pass is [written over operations](ops::Forward): libtorch runs it.
macro_rules! runs_its_pass {
    () => {
        fn enter(
            &self,
            weights: &crate::model::network::Weights,
            samples: &crate::data::Fields,
        ) -> crate::data::Fields {
            self.enter_by(&crate::model::network::ops::Eager::of(weights), samples)
        }

        fn stage(
            &self,
            weights: &crate::model::network::Weights,
            stage: usize,
            x: crate::data::Fields,
        ) -> crate::data::Fields {
            self.stage_by(&crate::model::network::ops::Eager::of(weights), stage, x)
        }

        fn features(&self, weights: &crate::model::network::Weights, x: &crate::data::Fields) -> tch::Tensor {
            self.features_by(&crate::model::network::ops::Eager::of(weights), x)
        }

        fn written(&self) -> Option<&dyn crate::model::network::ops::Written> {
            Some(self)
        }

        fn divides(&self) -> bool {
            true
        }
    };
}

pub(crate) use runs_its_pass;

/// The operation of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// The product x Wᵀ + b over the last axis.
    Linear,
    /// A convolution with 1 × 1 kernels, which is linear in the channels.
    Pointwise,
    /// Any other weight, which has no low-rank update.
    Other,
}

/// The graph that a pass keeps for the backward pass.
#[derive(Clone, Copy)]
pub enum Graph<'a> {
    /// No graph: a prediction.
    None,
    /// A graph down to the samples through fixed weights, for this many budgets: an attack.
    Samples { budgets: usize },
    /// A graph down to the trained layers. With `recompute`, only the input of each stage is kept. With `own_samples`,
    /// each member sees its own samples; with `twice`, gradients are differentiated again.
    Weights { trained: &'a dyn Trained, recompute: bool, own_samples: bool, twice: bool },
}

/// The trained parameters of a network.
pub trait Trained {
    /// Returns the names of the trained parameters.
    fn names(&self) -> Vec<&str>;

    /// Returns whether a parameter whose name starts with `prefix` is trained.
    fn reaches(&self, prefix: &str) -> bool {
        self.names().iter().any(|name| name.starts_with(prefix))
    }

    /// Returns whether a layer, or the parameter of that name, is trained.
    fn reaches_layer(&self, layer: &str) -> bool {
        let in_layer =
            |name: &str| name.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.names().into_iter().any(in_layer)
    }
}

/// The facts by which a network decides how much of its pass is computed once for all particles.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    /// The parameters of the network that are trained.
    pub trained: &'a dyn Trained,
    /// The number of samples for which the shared part is in memory at the same time.
    pub samples: i64,
}

/// The size of one sample on its way through a network.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The rows of its matrix products, about.
    pub tokens: usize,
    /// The numbers of a row.
    pub width: usize,
}

/// A network that turns weights and samples into features, for all particles at once.
pub trait Network {
    /// Returns the layers that can be adapted, in the order of the forward pass.
    fn slots(&self) -> Vec<Slot>;

    /// Returns the number of stages, at least 1.
    fn stages(&self) -> usize;

    /// Returns the number of blocks, by whose numbers `subspace.low-rank.blocks` chooses layers.
    fn blocks(&self) -> usize {
        self.stages()
    }

    /// Returns the block that a layer belongs to; `None` for one outside of the blocks.
    fn block_of(&self, slot: &Slot) -> Option<usize> {
        (slot.stage < self.stages()).then_some(slot.stage)
    }

    /// Returns the first stage that uses the parameter `name`, or [`stages`](Self::stages) if only the readout uses it.
    fn stage_of(&self, name: &str) -> usize;

    /// Returns the width of the features, d.
    fn feature_width(&self) -> i64;

    /// Returns the linear layer whose output, up to what is added to it, is the features; `None` if there is none. `base` holds
    /// the frozen weights.
    fn projection(&self, _base: &Parameters) -> Option<&'static str> {
        None
    }

    /// Returns the shapes of a stage's input for one sample, which are also those of a cache entry.
    fn entering(&self, stage: usize) -> Fields<Vec<i64>>;

    /// Returns the input of stage 0, `[p', B, …]`, from prepared samples `[p, B, …]`.
    fn enter(&self, weights: &Weights, samples: &Fields) -> Fields;

    /// Returns the output of stage `stage`, `[p', B, …]`, from its input `[p, B, …]`.
    fn stage(&self, weights: &Weights, stage: usize, x: Fields) -> Fields;

    /// Returns the features `[p', B, d]` from the output of the last stage.
    fn features(&self, weights: &Weights, x: &Fields) -> Tensor;

    /// Returns whether a pass can record the inputs and outputs of adapted layers on a tape.
    fn records_layers(&self) -> bool {
        true
    }

    /// Returns whether a layer of a network that reads texts sees their tokens.
    fn sees_texts(&self, _layer: &str) -> bool {
        true
    }

    /// Returns the network as one that writes texts token by token, if it is one.
    fn autoregressive(&self) -> Option<&dyn Autoregressive> {
        None
    }

    /// Returns the network as one whose pass other interpreters can run, if it is written over [operations](ops).
    fn written(&self) -> Option<&dyn Written> {
        None
    }

    /// Returns whether several threads may run passes at the same time: a pass changes nothing in the network that is not locked, or the
    /// thread's own.
    fn divides(&self) -> bool {
        false
    }

    /// Returns the bytes that each thread that makes a pass holds beside the weights which it is given.
    fn copy_bytes(&self, trained: &dyn Trained) -> u64 {
        let _ = trained;
        0
    }

    /// Returns whether a thread may begin a pass while it keeps the graph of another one.
    fn keeps_graphs(&self) -> bool {
        true
    }

    /// Returns the size of one sample on its way through the stages, by which passes are divided.
    fn extent(&self) -> Extent {
        let entering = self.entering(0);
        let size = entering.first();
        let width = size.last().map_or(1, |width| (*width).max(1));
        Extent { tokens: (size.iter().product::<i64>() / width).max(1) as usize, width: width as usize }
    }

    /// Returns the memory of a pass with the frozen weights `base` in a compute type, per sample and per sample of each member.
    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate;

    /// Returns the input of stage `stage`, `[p', B, …]`, from prepared samples `[p, B, …]`.
    fn enter_at(&self, weights: &Weights, stage: usize, samples: &Fields) -> Fields {
        (0..stage).fold(self.enter(weights, samples), |x, stage| self.stage(weights, stage, x))
    }

    /// Runs what of stage `stage` lies in front of its first trained layer, from the stage's input. What is returned enters the same
    /// stage.
    fn enter_within(&self, _weights: &Weights, _stage: usize, x: Fields, _shared: Shared) -> Fields {
        x
    }

    /// Returns the features `[p', B, d]` from prepared samples `[p, B, …]`.
    fn forward(&self, weights: &Weights, samples: &Fields) -> Tensor {
        self.features_from(weights, 0, self.enter(weights, samples))
    }

    /// Returns the features `[p', B, d]` from the input of stage `stage`.
    fn features_from(&self, weights: &Weights, stage: usize, x: Fields) -> Tensor {
        let x = (stage..self.stages()).fold(x, |x, stage| self.stage(weights, stage, x));
        self.features(weights, &x)
    }

    /// Returns the first stage that uses a trained parameter. Its input is the same for all particles.
    fn first_stage(&self, trained: &dyn Trained) -> usize {
        let stage = |name: &&str| if name.starts_with(HEAD) { self.stages() } else { self.stage_of(name) };
        trained.names().iter().map(stage).min().unwrap_or(self.stages())
    }
}

/// The tokens that a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    All,
    /// Only the last token of each text, which is all that is read after the last block.
    Last,
}
