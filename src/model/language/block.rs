//! The block of the networks: attention with shared heads of keys and values, then an MLP, each with a norm before or behind it.

use tch::Kind;

use crate::data::Fields;
use crate::data::fields::MASK;
use crate::machine::memory::MemoryEstimate;
use crate::model::families::decoders::{HeadNorms, Mlp, NormPlaces, View};
use crate::model::language::Geometry;
use crate::model::language::rope::Table;
use crate::model::network::Rows;
use crate::model::network::ops::{Count, Flags, Layer, Mask, Ops, Written};
use crate::model::network::{Graph, HIDDEN, KeptPass, Parameters, has_large_blocks};

/// The texts that a block sees.
pub struct Texts<V> {
    /// The hidden states, `[p, B, T, d]`.
    pub hidden: V,
    /// 1 where there is a token, `[p, B, T, 1]`. Tokens come first, padding after them.
    pub mask: V,
    /// 1 where there is a token of a prompt whose tokens read each other in both directions, `[p, B, T, 1]`; `None` where every token
    /// looks back alone.
    pub prompt: Option<V>,
}

/// The name under which the tokens of such prompts travel between stages.
const PROMPT: &str = "prompt";

impl<V> Texts<V> {
    /// Takes what travels between stages.
    pub fn of<O: Ops<Value = V>>(ops: &O, x: &Fields<V>) -> Texts<V> {
        let prompt = x.find(PROMPT).map(|prompt| ops.again(prompt));
        Texts { hidden: ops.again(x.get(HIDDEN)), mask: ops.again(x.get(MASK)), prompt }
    }

    /// Returns what travels between stages.
    pub fn fields(self) -> Fields<V> {
        let prompt = self.prompt.map(|prompt| (PROMPT, prompt));
        Fields::new([(HIDDEN, self.hidden), (MASK, self.mask)].into_iter().chain(prompt).collect())
    }
}

impl Texts<Vec<i64>> {
    /// Returns the shapes of what travels between stages for one text of so many tokens; `prompt` says whether it is a prompt whose
    /// tokens read each other in both directions.
    pub fn entering(tokens: i64, width: i64, prompt: bool) -> Fields<Vec<i64>> {
        Texts { hidden: vec![tokens, width], mask: vec![tokens, 1], prompt: prompt.then(|| vec![tokens, 1]) }.fields()
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
    /// The angles of all rotary positions of the network.
    pub tables: &'a [Table<O::Value>],
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
                let tokens = ops.length(normed, 2);
                let window = self.view().window.filter(|window| *window < tokens);
                let mask = match &texts.prompt {
                    Some(prompt) => Mask::Prompt(ops.again(prompt)),
                    None => window.map_or(Mask::Causal, Mask::Window),
                };
                let read = self.attended([&self.query(normed, &Places::First), key, value], mask);
                // Padding stays zero, so that no layer after it sees anything there.
                let read = ops.mul(read, ops.again(&texts.mask));
                Texts { hidden: self.rest(texts.hidden, &read), ..texts }
            }
            Rows::Last => {
                let last = ops.last(&texts.mask);
                let query = self.query(&ops.at(normed, &last), &Places::At(&last));
                let read = self.attended([&query, key, value], self.seen(&texts.mask));
                let x = ops.at(&texts.hidden, &last);
                Texts { hidden: self.rest(x, &read), mask: ops.slice(&texts.mask, 2, 0, 1), prompt: None }
            }
        }
    }

    /// Returns what the last token of each text sees of those in a mask `[p, B, T, 1]`.
    pub fn seen(&self, mask: &O::Value) -> Mask<O::Value> {
        match self.view().window.filter(|window| *window < self.ops.length(mask, 2)) {
            Some(window) => Mask::Seen(self.ops.latest(mask, window)),
            None => Mask::Seen(self.ops.again(mask)),
        }
    }

    /// Returns what queries read, `[p, B, T, heads · D]`.
    pub fn attended(&self, heads: [&O::Value; 3], mask: Mask<O::Value>) -> O::Value {
        self.ops.attend(heads, mask, self.geometry.traits.scoring)
    }

    fn view(&self) -> View {
        self.geometry.views[self.index]
    }

    fn name(&self, layer: &str) -> String {
        format!("blocks.{}.{layer}", self.index)
    }

    /// Returns `x` after a norm of the block, if the family has one at such a place; `x` itself otherwise.
    fn normed_at(&self, layer: &str, place: NormPlaces, x: O::Value) -> O::Value {
        match self.geometry.traits.norms {
            NormPlaces::Both => self.geometry.normed(self.ops, &self.name(layer), &x),
            own if own == place => self.geometry.normed(self.ops, &self.name(layer), &x),
            _ => x,
        }
    }

    /// Returns the input of attention, `[p', B, T, d]`, normalised where the family does so.
    pub fn normed(&self, x: &O::Value) -> O::Value {
        self.normed_at("ln_1", NormPlaces::Before, self.ops.again(x))
    }

    /// Returns the hidden states after attention, which has read `read: [p, B, T, heads · D]`, and the MLP.
    pub fn rest(&self, x: O::Value, read: &O::Value) -> O::Value {
        let ops = self.ops;
        let read = ops.linear(&self.name("attn.proj"), read);
        let x = ops.add(x, self.normed_at("ln_1_after", NormPlaces::After, read));
        let normed = self.normed_at("ln_2", NormPlaces::Before, ops.again(&x));
        let hidden = ops.linear(&self.name("mlp.proj"), &self.hidden(&normed));
        ops.add(x, self.normed_at("ln_2_after", NormPlaces::After, hidden))
    }

    /// Returns the hidden values of the MLP, `[p', B, T, h]`.
    fn hidden(&self, x: &O::Value) -> O::Value {
        let (ops, Geometry { mlp, traits, .. }) = (self.ops, self.geometry);
        let activated = |x: O::Value| ops.activation(traits.activation, x);
        match traits.mlp {
            Mlp::Plain => activated(ops.linear(&self.name("mlp.fc"), x)),
            Mlp::Gated => {
                let gate = activated(ops.linear(&self.name("mlp.gate"), x));
                ops.mul(gate, ops.linear(&self.name("mlp.fc"), x))
            }
            Mlp::GatedInOne => {
                let both = ops.linear(&self.name("mlp.gate_fc"), x);
                let [gate, factor] = [0, *mlp].map(|from| ops.slice(&both, 3, from, *mlp));
                ops.mul(activated(gate), factor)
            }
        }
    }

    /// Returns heads `[p', B, heads, T, D]` of the layer `q` or `k`, normalised where the family does so.
    fn heads_of(&self, layer: &str, x: &O::Value) -> O::Value {
        let y = self.ops.linear(&self.name(&format!("attn.{layer}")), x);
        let y = self.normed_heads(layer, y);
        let heads = self.ops.length(&y, 3) / self.geometry.channels;
        self.ops.heads(&y, 1, heads).remove(0)
    }

    /// Normalises outputs `[p, B, T, heads · D]` of a layer, where the family does.
    fn normed_heads(&self, layer: &str, y: O::Value) -> O::Value {
        let Geometry { channels, traits, .. } = *self.geometry;
        let norm = |x: &O::Value| self.geometry.normed(self.ops, &self.name(&format!("attn.{layer}_norm")), x);
        match traits.head_norms {
            HeadNorms::None => y,
            HeadNorms::Together => norm(&y),
            HeadNorms::Each => {
                let [tokens, width] = [2, 3].map(|axis| self.ops.length(&y, axis));
                let heads = self.ops.reshape(&y, &[tokens * width / channels, channels]);
                self.ops.reshape(&norm(&heads), &[tokens, width])
            }
        }
    }

    /// Turns heads by the angles of the block, if it has some.
    fn turned(&self, x: O::Value, places: &Places<O::Value>) -> O::Value {
        let Some(rope) = self.view().rope else { return x };
        match places {
            Places::First => self.tables[rope].turn(self.ops, &x),
            Places::At(positions) => self.tables[rope].turn_at(self.ops, &x, positions),
        }
    }

    /// Returns rows of the layer of queries, keys and values, the first one and their number.
    fn fused(&self, rows: (i64, i64), x: &O::Value) -> O::Value {
        self.ops.layer(Layer { name: &self.name("attn.qkv"), rows: Some(rows), keyless_bias: false }, x)
    }

    /// Returns the queries of tokens at `places`, `[p', B, heads, T, D]`.
    pub fn query(&self, x: &O::Value, places: &Places<O::Value>) -> O::Value {
        let Geometry { heads, channels, traits, .. } = *self.geometry;
        let query = match traits.is_qkv_fused {
            true => self.ops.heads(&self.fused((0, heads * channels), x), 1, heads).remove(0),
            false => self.heads_of("q", x),
        };
        self.turned(query, places)
    }

    /// Returns the keys and values of tokens at `places`, `[p', B, key heads, T, D]` each.
    pub fn keys_and_values(&self, x: &O::Value, places: &Places<O::Value>) -> [O::Value; 2] {
        let Geometry { heads, key_heads, channels, traits, .. } = *self.geometry;
        let ops = self.ops;
        let [key, value] = match traits.is_qkv_fused {
            true => {
                let both = self.fused((heads * channels, 2 * key_heads * channels), x);
                let mut both = ops.heads(&both, 2, key_heads);
                let value = both.remove(1);
                [both.remove(0), value]
            }
            false => {
                let value = ops.linear(&self.name("attn.v"), x);
                [self.heads_of("k", x), ops.heads(&value, 1, key_heads).remove(0)]
            }
        };
        [self.turned(key, places), value]
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
    /// Whether the tokens of prompts read each other in both directions.
    pub prompt: bool,
    pub kind: Kind,
    pub graph: Graph<'a>,
}

impl Pass<'_> {
    /// Returns the memory of the pass, per prompt and per prompt of each member.
    pub fn need(&self) -> MemoryEstimate {
        /// Freed tensors leave holes between those that stay: 1.5 to 1.7 were measured on CPUs (results/language.md).
        const HOLES: f64 = 1.6;
        /// The same on CPUs where blocks are large (results/quantised.md).
        const OF_LARGE: f64 = 2.8;
        /// The bytes of an id and of its place in the mask, as stored and as they are looked up.
        const ID: u64 = 2 * (4 + 3 * 8);
        let number = self.kind.elt_size_in_bytes() as u64;
        let is_large = has_large_blocks(self.base, self.blocks) && self.base.lie_on_cpu();
        let holes = if is_large { OF_LARGE } else { HOLES };
        let pair = (holes * (number * self.entries()) as f64) as u64;
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
        let hidden = Count::new(&[self.tokens, self.width], Flags { apart: true, live: self.flows || embeds });
        let column = || Count::new(&[self.tokens, 1], Flags { apart: true, live: false });
        let entered = Texts { hidden, mask: column(), prompt: self.prompt.then(column) }.fields();
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
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::model::families::decoders::decoder;
    use crate::model::language::{EMBEDDING, Geometry, Language, sizes};
    use crate::model::network::Trained;
    use crate::model::values::Values;

    struct Queries;
    impl Trained for Queries {
        fn names(&self) -> Vec<&str> {
            vec!["blocks.1.attn.q.A", "blocks.1.mlp.proj.A", "blocks.2.attn.v.B", "lm_head.A"]
        }
    }

    /// The counts are made by hand: width 16, MLP 24, 4 heads of 6 channels, 2 of keys, 3 blocks, 10 tokens.
    #[test]
    fn entries_are_counted_an_operation() {
        let config = json!({ "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6 });
        let values = Values::new(Path::new("config.json"), config);
        let geometry = Geometry::read(&values, decoder("llama").unwrap()).unwrap();
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
            prompt: false,
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
        let weights = |recompute| Graph::Weights { trained: &Queries, recompute, own_samples: true, twice: false };
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
