//! The memory of passes through a network of texts: what its operations keep and use at once, as [`KeptPass`] counts them.

use tch::Kind;

use super::Texts;
use crate::machine::memory::MemoryEstimate;
use crate::model::network::kept::KeptPass;
use crate::model::network::ops::{Count, Written};
use crate::model::network::{Graph, Parameters};

/// A pass through a network of texts in a compute type.
pub struct Pass<'a> {
    pub network: &'a dyn Written,
    /// The width of hidden states.
    pub width: i64,
    /// The channels of all heads together.
    pub attended: i64,
    pub blocks: usize,
    /// The parameters before the first block.
    pub embeds: &'a [&'a str],
    /// The number of tokens of a prompt.
    pub tokens: i64,
    pub base: &'a Parameters,
    /// Whether gradients flow through what enters the first block, such as those of a tower that sees.
    pub flows: bool,
    pub kind: Kind,
    pub graph: Graph<'a>,
}

impl Pass<'_> {
    /// Returns the memory of the pass, per prompt and per prompt of each member.
    pub fn need(&self) -> MemoryEstimate {
        // Freed tensors leave holes between those that stay: 1.5 to 1.7 were measured on CPUs (results/language.md).
        const HOLES: f64 = 1.6;
        /// The bytes of an id and of its place in the mask, as stored and as they are looked up.
        const ID: u64 = 2 * (4 + 3 * 8);
        let number = self.kind.elt_size_in_bytes() as u64;
        let pair = (HOLES * (number * self.entries()) as f64) as u64;
        let ids = ID * self.tokens as u64;
        match self.graph {
            Graph::Weights { own_samples: true, .. } => {
                MemoryEstimate { pair: pair + ids, ..MemoryEstimate::default() }
            }
            _ => MemoryEstimate { image: ids, pair, ..MemoryEstimate::default() },
        }
    }

    /// Returns the number of entries that a pass of one prompt keeps and uses at once.
    fn entries(&self) -> u64 {
        let &Pass { network, base, kind, graph, .. } = self;
        let embeds = match graph {
            Graph::Samples { .. } => true,
            Graph::Weights { trained, .. } => self.embeds.iter().any(|layer| trained.reaches_layer(layer)),
            Graph::None => false,
        };
        let hidden = Count::new(&[self.tokens, self.width], true, self.flows || embeds);
        let entered = Texts { hidden, mask: Count::new(&[self.tokens, 1], true, false) }.fields();
        let kept = KeptPass { network, stages: self.blocks, part: "", base, kind, graph };
        kept.entries(|_| entered) + self.beside()
    }

    /// Returns the number of entries in use beside those of one operation: hidden states and norms, and heads that are turned.
    fn beside(&self) -> u64 {
        (self.tokens * (6 * self.width + 3 * self.attended)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::families::decoders::{Biases, Traits, decoder};
    use crate::model::language::rope::{Rope, Scaling};
    use crate::model::language::{EMBEDDING, Geometry, Language, sizes};
    use crate::model::network::Trained;
    use crate::model::network::ops::Activation;

    struct Queries;
    impl Trained for Queries {
        fn names(&self) -> Vec<&str> {
            vec!["blocks.1.attn.q.A", "blocks.1.mlp.proj.A", "blocks.2.attn.v.B", "lm_head.A"]
        }
    }

    /// The counts are made by hand: width 16, MLP 24, 4 heads of 6 channels, 2 of keys, 3 blocks, 10 tokens.
    #[test]
    fn entries_are_counted_an_operation() {
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
            traits: Traits { biases: Biases::default(), head_norms: false, activation: Activation::Silu, window: None },
            family: decoder("llama").unwrap(),
        };
        let base = Parameters::without_memory(sizes(&geometry), Kind::Float);
        let language = Language::new(geometry, 10);
        let pass = |graph| Pass {
            network: &language,
            width: 16,
            attended: 24,
            blocks: 3,
            embeds: &[EMBEDDING],
            tokens: 10,
            base: &base,
            flows: false,
            kind: Kind::Float,
            graph,
        };
        let alone = 10 * (3 * 24 + 6 * 16 + 3 * 24);
        assert_eq!(pass(Graph::None).entries(), alone);
        let with_graph = alone + 10 * 2 * 24;
        // The mask is kept once, by the first block that reads it. The last block reads one token behind its keys and values,
        // which is turned by the angles of its place.
        let mask = 10;
        let whole = 10 * (16 + 16 + 2 * 24 + 2 * 12 + 3 * 24);
        let last = 10 * (16 + 2 * 12) + 16 + 2 * 24 + 3 * 24 + 2 * 6;
        assert_eq!(pass(Graph::Samples { budgets: 1 }).entries(), with_graph + mask + 2 * whole + last);
        // Gradients begin at the queries of the second block: neither its first norm nor its keys and values have some.
        let weights = |recompute| Graph::Weights { trained: &Queries, recompute, own_samples: true };
        let second = 10 * (16 + 2 * 24 + 2 * 12 + 16 + 3 * 24 + 24) + mask;
        let found = pass(weights(false)).entries();
        assert_eq!(found, with_graph + second + last + 160);
        assert_eq!(pass(weights(true)).entries(), with_graph + 2 * 170 + second);
        assert_eq!(pass(weights(false)).need().image, 0);
        // In bf16 the inputs of norms take two entries each.
        let half = Pass { kind: Kind::BFloat16, ..pass(weights(false)) };
        assert!(half.entries() > found);
    }
}
