//! The memory of passes through a vision transformer, counted from what each block keeps.
//!
//! Let d be the width and m the width of the MLP. With a graph, a block keeps for each token: the inputs of both norms
//! (2 d), the queries, keys, values and the result of attention (4 d), and the input of the activation (m, or 2 m for
//! QuickGELU, which also keeps the sigmoid). A trained linear layer also keeps its input; a norm with weights per
//! particle keeps the normalised values twice. The last block computes only the class token.

use tch::Kind;

use super::parts::{Parts, Readout};
use super::{Activation, Geometry, Traits};
use crate::machine::memory::Need;
use crate::model::network::{Graph, Trained};

/// A pass through a vision transformer in a compute type.
pub struct Pass<'a> {
    pub geometry: &'a Geometry,
    pub traits: Traits,
    pub parts: Parts,
    /// The first block that is trained, where the graph leads down to weights.
    pub first: usize,
    pub kind: Kind,
    pub graph: Graph<'a>,
}

impl Pass<'_> {
    /// Returns the memory of the pass, per image and per image of each member.
    pub fn need(&self) -> Need {
        let Geometry { grid, width, .. } = *self.geometry;
        let token = self.kind.elt_size_in_bytes() as u64;
        let tokens = (self.parts.prefix + grid * grid) as u64;
        // Freed tensors leave holes between those that stay; measured on CPUs.
        const HOLES: f64 = 1.2;
        let numbers = self.kept() + self.live() + 2 * width as u64;
        let activations = (HOLES * (token * tokens * numbers) as f64) as u64;
        let (image, own) = self.pixels();
        Need { fixed: 0, member: 0, image, pair: activations + own }
    }

    /// Returns the number of values per token that all blocks keep.
    fn kept(&self) -> u64 {
        let blocks = self.geometry.blocks;
        let width = self.geometry.width as u64;
        match self.graph {
            Graph::None => 0,
            Graph::Samples { .. } => (0..blocks).map(|block| self.block(block, None)).sum(),
            Graph::Weights { trained, recompute, .. } => {
                let first = self.first;
                let kept = (first..blocks).map(|block| self.block(block, Some(trained)));
                if recompute { (blocks - first) as u64 * width + kept.max().unwrap_or(0) } else { kept.sum() }
            }
        }
    }

    /// Returns the number of values per token that one block keeps, given the layers that are trained.
    fn block(&self, block: usize, trained: Option<&dyn Trained>) -> u64 {
        let Geometry { width, mlp, blocks, .. } = *self.geometry;
        let (width, mlp) = (width as u64, mlp as u64);
        let trains = |layer: &str| trained.is_some_and(|trained| trained.reaches(&format!("blocks.{block}.{layer}.")));
        let when = |layer: &str, amount: u64| if trains(layer) { amount } else { 0 };
        let attention = 6 * width + when("ln_1", 2 * width) + when("attn.qkv", width) + self.scores(trained);
        if block + 1 == blocks && self.parts.readout == Readout::Class {
            return attention;
        }
        let hidden = if self.traits.activation == Activation::QuickGelu { 2 * mlp } else { mlp };
        // A gated MLP keeps the gate, its activation and its other factor; a learnt scale and a norm keep their input.
        let parts = self.parts.block;
        let extra = [
            (parts.gated, 2 * mlp),
            (parts.layer_scale, 2 * width),
            (parts.attention_norm, width + when("attn.norm", 2 * width)),
            (parts.mlp_norm, mlp + when("mlp.norm", 2 * mlp)),
        ];
        let hidden = hidden + extra.iter().filter(|(there, _)| *there).map(|(_, numbers)| numbers).sum::<u64>();
        let layers = when("attn.proj", width) + when("ln_2", 2 * width) + when("mlp.fc", width) + when("mlp.proj", mlp);
        attention + hidden + layers
    }

    /// Returns the number of values per token that attention keeps if learnt scores of distances are trained. The scores
    /// are then added, and their softmax taken, for all pairs of tokens at once.
    fn scores(&self, trained: Option<&dyn Trained>) -> u64 {
        let reached = |trained: &dyn Trained| trained.names().iter().any(|name| name.contains("relative."));
        match self.parts.relative && trained.is_some_and(reached) {
            true => 3 * (self.traits.heads * (self.parts.prefix + self.geometry.grid.pow(2))) as u64,
            false => 0,
        }
    }

    /// Returns the number of values per token in use at once within a block, in the forward pass or, with a graph, in
    /// the backward pass.
    fn live(&self) -> u64 {
        let (width, mlp) = (self.geometry.width as u64, self.geometry.mlp as u64);
        let there = if self.traits.activation == Activation::QuickGelu { 4 * mlp } else { 2 * mlp + mlp / 2 };
        let back = if matches!(self.graph, Graph::None) { 0 } else { mlp };
        there + back + 4 * width
    }

    /// Returns the bytes of an image's pixels: those that all members share, and those of each member.
    fn pixels(&self) -> (u64, u64) {
        const F32: u64 = 4;
        const F64: u64 = 8;
        let size = self.geometry.image_size() as u64;
        let numbers = 3 * size * size;
        // Stored bytes, pixels in f32, normalised pixels and patches. Training normalises in place.
        let seen = numbers * (1 + 2 * F32 + 2 * self.kind.elt_size_in_bytes() as u64);
        match self.graph {
            Graph::None => (seen + numbers * F32, 0),
            Graph::Weights { own_samples: false, .. } => (seen, 0),
            Graph::Weights { own_samples: true, .. } => (0, seen),
            // The gradient and its sum, the images of each budget, and the projection, which is computed in f64.
            Graph::Samples { budgets } => (seen + numbers * (F32 * (3 + 2 * budgets as u64) + 6 * F64), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vit::shapes::SHAPES;

    /// The counts are made by hand for clip-mini: width 192, MLP 768, 17 tokens, 6 blocks, GELU, f32.
    #[test]
    fn kept_numbers_are_counted_a_block() {
        let vit = SHAPES.iter().find(|shape| shape.key == "clip-mini").unwrap().random(1).0;
        struct Mlps;
        impl Trained for Mlps {
            fn names(&self) -> Vec<&str> {
                vec!["blocks.4.mlp.fc.A", "blocks.4.mlp.proj.A", "blocks.5.mlp.fc.A", "blocks.5.mlp.proj.A"]
            }
        }
        let pass = |graph| Pass {
            geometry: &vit.geometry,
            traits: vit.traits,
            parts: Parts::PLAIN,
            first: 4,
            kind: Kind::Float,
            graph,
        };
        assert_eq!(pass(Graph::None).kept(), 0);
        assert_eq!(pass(Graph::Samples { budgets: 1 }).kept(), 6 * 6 * 192 + 5 * 768);
        let weights = |recompute| Graph::Weights { trained: &Mlps, recompute, own_samples: true };
        let fourth = 7 * 192 + 2 * 768;
        assert_eq!(pass(weights(false)).kept(), fourth + 6 * 192);
        assert_eq!(pass(weights(true)).kept(), 2 * 192 + fourth);
        let need = pass(weights(false)).need();
        assert_eq!(need.image, 0);
        let numbers = 4 * 17 * (pass(weights(false)).kept() + 2688 + 768 + 384);
        assert_eq!(need.pair, numbers * 12 / 10 + 3 * 32 * 32 * 17);
    }
}
