//! The block that the networks of the family share: attention with rotary positions and shared heads of keys and values,
//! then a gated MLP, each behind a norm by the root mean square.

use tch::Kind;

use crate::data::Fields;
use crate::data::fields::MASK;
use crate::machine::memory::MemoryEstimate;
use crate::model::language::Geometry;
use crate::model::language::rope::Table;
use crate::model::network::Rows;
use crate::model::network::ops::{Count, Mask, Ops, Written};
use crate::model::network::{Graph, HIDDEN, KeptPass, Parameters};

/// The texts that a block sees.
pub struct Texts<V> {
    /// The hidden states, `[p, B, T, d]`.
    pub hidden: V,
    /// 1 where there is a token, `[p, B, T, 1]`. Tokens come first, padding after them.
    pub mask: V,
}

impl<V> Texts<V> {
    /// Takes what travels between stages.
    pub fn of<O: Ops<Value = V>>(ops: &O, x: &Fields<V>) -> Texts<V> {
        Texts { hidden: ops.again(x.get(HIDDEN)), mask: ops.again(x.get(MASK)) }
    }

    /// Returns what travels between stages.
    pub fn fields(self) -> Fields<V> {
        Fields::new(vec![(HIDDEN, self.hidden), (MASK, self.mask)])
    }
}

impl Texts<Vec<i64>> {
    /// Returns the shapes of what travels between stages for one text of so many tokens.
    pub fn entering(tokens: i64, width: i64) -> Fields<Vec<i64>> {
        Texts { hidden: vec![tokens, width], mask: vec![tokens, 1] }.fields()
    }
}

/// The positions of tokens in their texts.
pub enum Places<'a, V> {
    /// One after the other, from the first on.
    First,
    /// One token of each text, at these positions `[p, B]`.
    At(&'a V),
}

/// A block of a network.
pub struct Block<'a, O: Ops> {
    pub ops: &'a O,
    pub geometry: &'a Geometry,
    pub table: &'a Table<O::Value>,
    pub index: usize,
    pub rows: Rows,
}

impl<O: Ops> Block<'_, O> {
    /// Runs the block.
    pub fn forward(&self, texts: Texts<O::Value>) -> Texts<O::Value> {
        let normed = self.normed(&texts.hidden);
        let kept = self.keys_and_values(&normed, &Places::First);
        self.forward_with(texts, &normed, &kept)
    }

    /// Runs the block with its normalised input, keys and values.
    pub fn forward_with(
        &self,
        texts: Texts<O::Value>,
        normed: &O::Value,
        [key, value]: &[O::Value; 2],
    ) -> Texts<O::Value> {
        let ops = self.ops;
        match self.rows {
            Rows::All => {
                let read = ops.attention([&self.query(normed, &Places::First), key, value], Mask::Causal);
                // Padding stays zero, so that no layer after it sees anything there.
                let read = ops.mul(read, ops.again(&texts.mask));
                Texts { hidden: self.rest(texts.hidden, &read), mask: texts.mask }
            }
            Rows::Last => {
                let last = ops.last(&texts.mask);
                let query = self.query(&ops.at(normed, &last), &Places::At(&last));
                let read = ops.attention([&query, key, value], Mask::Seen(ops.again(&texts.mask)));
                let x = ops.at(&texts.hidden, &last);
                Texts { hidden: self.rest(x, &read), mask: ops.slice(&texts.mask, 2, 0, 1) }
            }
        }
    }

    fn name(&self, layer: &str) -> String {
        format!("blocks.{}.{layer}", self.index)
    }

    /// Returns the normalised input of attention, `[p', B, T, d]`.
    pub fn normed(&self, x: &O::Value) -> O::Value {
        self.ops.rms_norm(&self.name("ln_1"), x, self.geometry.eps)
    }

    /// Returns the hidden states after attention, which has read `read: [p, B, T, heads · D]`, and the MLP.
    pub fn rest(&self, x: O::Value, read: &O::Value) -> O::Value {
        let ops = self.ops;
        let x = ops.add(x, ops.linear(&self.name("attn.proj"), read));
        let normed = ops.rms_norm(&self.name("ln_2"), &x, self.geometry.eps);
        let gate = ops.activation(self.geometry.traits.activation, ops.linear(&self.name("mlp.gate"), &normed));
        let hidden = ops.mul(gate, ops.linear(&self.name("mlp.fc"), &normed));
        ops.add(x, ops.linear(&self.name("mlp.proj"), &hidden))
    }

    /// Returns the outputs `[p', B, heads, T, D]` of one of the layers `q`, `k` and `v`.
    fn heads_of(&self, layer: &str, x: &O::Value) -> O::Value {
        let y = self.ops.linear(&self.name(&format!("attn.{layer}")), x);
        let y = if layer == "v" { y } else { self.normed_heads(layer, y) };
        let heads = self.ops.length(&y, 3) / self.geometry.channels;
        self.ops.heads(&y, 1, heads).remove(0)
    }

    /// Normalises outputs `[p, B, T, heads · D]` of a layer head by head, where the family does.
    fn normed_heads(&self, layer: &str, y: O::Value) -> O::Value {
        let Geometry { channels, eps, traits, .. } = *self.geometry;
        if !traits.head_norms {
            return y;
        }
        let [tokens, width] = [2, 3].map(|axis| self.ops.length(&y, axis));
        let heads = self.ops.reshape(&y, &[tokens * width / channels, channels]);
        let normed = self.ops.rms_norm(&self.name(&format!("attn.{layer}_norm")), &heads, eps);
        self.ops.reshape(&normed, &[tokens, width])
    }

    fn turned(&self, x: &O::Value, places: &Places<O::Value>) -> O::Value {
        match places {
            Places::First => self.table.turn(self.ops, x),
            Places::At(positions) => self.table.turn_at(self.ops, x, positions),
        }
    }

    /// Returns the queries of tokens at `places`, `[p', B, heads, T, D]`.
    pub fn query(&self, x: &O::Value, places: &Places<O::Value>) -> O::Value {
        self.turned(&self.heads_of("q", x), places)
    }

    /// Returns the keys and values of tokens at `places`, `[p', B, key heads, T, D]` each.
    pub fn keys_and_values(&self, x: &O::Value, places: &Places<O::Value>) -> [O::Value; 2] {
        let keys = self.turned(&self.heads_of("k", x), places);
        [keys, self.heads_of("v", x)]
    }
}

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
