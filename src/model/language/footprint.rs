//! The memory of passes through a language network, counted from what each block keeps.
//!
//! Let d be the width, m the width of the MLP, and q and k those of all queries and of all keys. With a graph, a block
//! keeps for each token: around each norm the hidden state, the normalised one and its product with the weight (6 d), both
//! residual sums and the mask's product (2 d + q), queries and keys before and after their turn with its halves (4 q + 4 k),
//! values and what attention read (k + 2 q), and the gate, its activation, the other factor and the product (4 m).

use tch::Kind;

use super::Geometry;
use crate::machine::memory::Need;
use crate::model::network::Graph;

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
        // Freed tensors leave holes between those that stay.
        const HOLES: f64 = 1.2;
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
        let blocks = self.geometry.blocks as u64;
        match self.graph {
            Graph::None => 0,
            Graph::Samples { .. } => blocks * self.block(),
            Graph::Weights { recompute, .. } => {
                let trained = blocks - self.first as u64;
                let entered = self.geometry.width as u64 + 1;
                if recompute {
                    trained * entered + self.block().min(trained * self.block())
                } else {
                    trained * self.block()
                }
            }
        }
    }

    /// Returns the number of values per token that one block keeps.
    fn block(&self) -> u64 {
        let Geometry { width, mlp, heads, key_heads, channels, .. } = *self.geometry;
        let (queries, keys) = (heads * channels, key_heads * channels);
        (8 * width + 7 * queries + 5 * keys + 4 * mlp + 1) as u64
    }

    /// Returns the number of values per token in use at once within a block.
    fn live(&self) -> u64 {
        let Geometry { width, mlp, heads, channels, .. } = *self.geometry;
        let back = if matches!(self.graph, Graph::None) { 0 } else { 2 * mlp };
        (6 * width + 3 * heads * channels + 3 * mlp + back) as u64
    }
}
