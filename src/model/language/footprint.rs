//! The memory of passes through a language network, counted from what each block keeps.
//!
//! Let d be the width, m the width of the MLP, and q and k those of all queries and of all keys. With a graph, a block
//! keeps for each token: the inputs of both norms in f32 (2 d), the turned queries and keys, the values and what attention read
//! (2 q + 2 k), and the gate, its activation and its other factor (3 m). A trained linear layer also keeps its input, which
//! layers side by side share; a norm with weights per particle keeps the normalised values. The last block computes the last
//! token alone behind its keys and values.

use tch::Kind;

use super::Geometry;
use crate::base::tensor::wide;
use crate::machine::memory::Need;
use crate::model::network::{Graph, Trained};

/// A pass through a language network in a compute type.
pub struct Pass<'a> {
    pub geometry: &'a Geometry,
    /// The number of tokens of a prompt.
    pub tokens: i64,
    /// The first block that is trained, where the graph leads down to weights.
    pub first: usize,
    pub kind: Kind,
    pub graph: Graph<'a>,
}

impl Pass<'_> {
    /// Returns the memory of the pass, per prompt and per prompt of each member.
    pub fn need(&self) -> Need {
        // Freed tensors leave holes between those that stay: 1.5 to 1.7 were measured on CPUs (results/language.md).
        const HOLES: f64 = 1.6;
        /// The bytes of an id and of its place in the mask, as stored and as they are looked up.
        const ID: u64 = 2 * (4 + 3 * 8);
        let number = self.kind.elt_size_in_bytes() as u64;
        let numbers = self.kept() + self.live();
        let pair = (HOLES * (number * self.tokens as u64 * numbers) as f64) as u64;
        let ids = ID * self.tokens as u64;
        match self.graph {
            Graph::Weights { own_samples: true, .. } => Need { pair: pair + ids, ..Need::default() },
            _ => Need { image: ids, pair, ..Need::default() },
        }
    }

    /// Returns the number of values per token that all blocks keep.
    fn kept(&self) -> u64 {
        let blocks = self.geometry.blocks;
        match self.graph {
            Graph::None => 0,
            Graph::Samples { .. } => (0..blocks).map(|block| self.block(block, None)).sum(),
            Graph::Weights { trained, recompute, .. } => {
                let kept = (self.first..blocks).map(|block| self.block(block, Some(trained)));
                let entered = (blocks - self.first) as u64 * (self.geometry.width as u64 + 1);
                if recompute { entered + kept.max().unwrap_or(0) } else { kept.sum() }
            }
        }
    }

    /// Returns the number of values per token that one block keeps, given the layers that are trained.
    fn block(&self, block: usize, trained: Option<&dyn Trained>) -> u64 {
        let Geometry { width, mlp, heads, key_heads, channels, blocks, .. } = *self.geometry;
        let (queries, keys) = ((heads * channels) as u64, (key_heads * channels) as u64);
        let (width, mlp) = (width as u64, mlp as u64);
        let trains = |layer: &str| trained.is_some_and(|trained| trained.reaches(&format!("blocks.{block}.{layer}.")));
        let when = |layers: &[&str], amount: u64| if layers.iter().any(|layer| trains(layer)) { amount } else { 0 };
        // A norm computes in f32 or wider, and keeps its input so.
        let norm = width * (wide(self.kind).elt_size_in_bytes() / self.kind.elt_size_in_bytes()) as u64;
        let attended = when(&["attn.q", "attn.k", "attn.v"], width) + when(&["ln_1"], width);
        if block + 1 == blocks {
            return norm + 2 * keys + attended;
        }
        let layers = when(&["attn.proj"], queries)
            + when(&["ln_2"], width)
            + when(&["mlp.gate", "mlp.fc"], width)
            + when(&["mlp.proj"], mlp);
        2 * norm + 2 * queries + 2 * keys + 3 * mlp + attended + layers
    }

    /// Returns the number of values per token in use at once within a block.
    fn live(&self) -> u64 {
        let Geometry { width, mlp, heads, channels, .. } = *self.geometry;
        let back = if matches!(self.graph, Graph::None) { 0 } else { 2 * mlp };
        (6 * width + 3 * heads * channels + 3 * mlp + back) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::language::config::Biases;
    use crate::model::language::rope::{Rope, Scaling};

    struct Queries;
    impl Trained for Queries {
        fn names(&self) -> Vec<&str> {
            vec!["blocks.1.attn.q.A", "blocks.1.mlp.proj.A", "blocks.2.attn.v.B", "lm_head.A"]
        }
    }

    /// The counts are made by hand: width 16, MLP 24, 4 heads of 6 channels, 2 of keys, 3 blocks.
    #[test]
    fn kept_numbers_are_counted_a_block() {
        let geometry = Geometry {
            vocabulary: 50,
            width: 16,
            mlp: 24,
            blocks: 3,
            heads: 4,
            key_heads: 2,
            channels: 6,
            context: 64,
            eps: 1e-6,
            rope: Rope { theta: 1e4, scaling: Scaling::None },
            tied: false,
            biases: Biases { qkv: false, attention_proj: false, mlp: false },
        };
        let pass = |graph| Pass { geometry: &geometry, tokens: 10, first: 1, kind: Kind::Float, graph };
        assert_eq!(pass(Graph::None).kept(), 0);
        let (whole, last) = (2 * 16 + 2 * 24 + 2 * 12 + 3 * 24, 16 + 2 * 12);
        assert_eq!(pass(Graph::Samples { budgets: 1 }).kept(), 2 * whole + last);
        let weights = |recompute| Graph::Weights { trained: &Queries, recompute, own_samples: true };
        let second = whole + 16 + 24;
        assert_eq!(pass(weights(false)).kept(), second + last + 16);
        assert_eq!(pass(weights(true)).kept(), 2 * 17 + second);
        assert_eq!(pass(weights(false)).need().image, 0);
        // In bf16 the inputs of norms take two values each: those of the second block's two, and of the last block's one.
        let half = Pass { kind: Kind::BFloat16, ..pass(weights(false)) };
        assert_eq!(half.kept(), pass(weights(false)).kept() + 3 * 16);
    }
}
