//! A text encoder as a [`Network`]. One forward pass serves all particles: activations are `[p, B, T, d]` with p = 1 until particles
//! differ, so frozen products run once on all rows.
//!
//! Hidden states `[p, B, T, d]` and a mask `[p, B, T, 1]` travel between stages. After the last block they are those of the first
//! token alone, which the features are read from.

use anyhow::{Result, ensure};
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::data::Fields;
use crate::data::fields::{IDS, KINDS, MASK};
use crate::machine::memory::MemoryEstimate;
use crate::model::families::encoders::{self, Numbering, Sizes};
use crate::model::families::{EMBEDDING, HARMLESS_ANYWHERE};
use crate::model::language::{Pass, Texts};
use crate::model::network::ops::{Activation, Constant, Forward, Mask, Ops};
use crate::model::network::{Graph, HIDDEN, Network, Parameters, Slot, SlotKind, block_of, runs_its_pass};
use crate::model::values::Values;

/// The layer on the first token, by which a whole text is read.
pub const POOLER: &str = "pooler";

/// A text encoder for texts of at most so many tokens.
#[derive(Debug)]
pub struct Encoder {
    pub geometry: Geometry,
    /// The most tokens of a text.
    pub tokens: i64,
    columns: Constant,
    first_kind: Constant,
}

/// The rows of the tables that embed the tokens of texts, `[p, B, T]` each, with their mask.
struct Sample<V> {
    ids: V,
    mask: V,
    kinds: V,
}

impl Encoder {
    pub fn new(geometry: Geometry, tokens: i64) -> Encoder {
        let [columns, first_kind] = ["text.columns", "text.first_kind"].map(Constant::new);
        Encoder { geometry, tokens, columns, first_kind }
    }

    /// Returns the number of values of a token in a sample: its id, its place in the mask, and its kind where there are several.
    pub fn values(&self) -> usize {
        if self.geometry.kinds > 1 { 3 } else { 2 }
    }

    /// Takes samples apart.
    fn sample<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Sample<O::Value> {
        let [ids, mask] = [IDS, MASK].map(|name| ops.again(samples.get(name)));
        let tokens = ops.length(&mask, 2);
        let kinds = match self.values() {
            3 => ops.again(samples.get(KINDS)),
            _ => ops.constant(&self.first_kind, &[tokens], &mask, |(_, device)| {
                Tensor::zeros([1, 1, tokens], (Kind::Int64, device))
            }),
        };
        Sample { ids, mask, kinds }
    }

    /// Returns the rows of the tokens' positions, `[p, B, T]`, or `[1, 1, T]` where they are those of all texts.
    fn positions<O: Ops>(&self, ops: &O, mask: &O::Value) -> O::Value {
        let tokens = ops.length(mask, 2);
        match self.geometry.family.numbering {
            Numbering::BehindPadding => ops.numbered(mask, self.geometry.padding),
            Numbering::Columns => ops.constant(&self.columns, &[tokens], mask, |(_, device)| {
                Tensor::arange(tokens, (Kind::Int64, device)).view([1, 1, tokens])
            }),
        }
    }

    fn norm<O: Ops>(&self, ops: &O, layer: &str, x: O::Value) -> O::Value {
        ops.norm(layer, &x, self.geometry.eps)
    }

    /// Runs a block on texts, of which the last one computes the first token alone.
    fn block<O: Ops>(&self, ops: &O, index: usize, Texts { hidden, mask }: Texts<O::Value>) -> Texts<O::Value> {
        let Geometry { heads, activation, .. } = self.geometry;
        let name = |layer: &str| format!("blocks.{index}.{layer}");
        let attended = |layer: &str, x: &O::Value| ops.heads(&ops.linear(&name(layer), x), 1, heads).remove(0);
        let [key, value] = ["attn.k", "attn.v"].map(|layer| attended(layer, &hidden));
        let is_last = index + 1 == self.geometry.blocks;
        let x = if is_last { ops.slice(&hidden, 2, 0, 1) } else { hidden };
        let read = ops.attention([&attended("attn.q", &x), &key, &value], Mask::Seen(ops.again(&mask)));
        let x = self.norm(ops, &name("ln_1"), ops.add(x, ops.linear(&name("attn.proj"), &read)));
        let inner = ops.activation(activation, ops.linear(&name("mlp.fc"), &x));
        let inner = ops.linear(&name("mlp.proj"), &inner);
        let hidden = self.norm(ops, &name("ln_2"), ops.add(x, inner));
        Texts { hidden, mask: if is_last { ops.slice(&mask, 2, 0, 1) } else { mask } }
    }
}

impl Forward for Encoder {
    fn depth(&self) -> usize {
        self.geometry.blocks
    }

    /// Returns the embeddings with the mask.
    fn enter_by<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Fields<O::Value> {
        let Sample { ids, mask, kinds } = self.sample(ops, samples);
        let words = ops.embedding(EMBEDDING, &ids);
        let x = ops.add(words, ops.embedding("kind", &kinds));
        let x = ops.add(x, ops.embedding("position", &self.positions(ops, &mask)));
        let hidden = self.norm(ops, "ln_pre", x);
        let mask = ops.column(&mask, &hidden);
        Texts { hidden, mask }.fields()
    }

    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value> {
        self.block(ops, stage, Texts::of(ops, &x)).fields()
    }

    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        let hidden = ops.again(x.get(HIDDEN));
        let read = match self.geometry.pooled {
            true => ops.activation(Activation::Tanh, ops.linear(POOLER, &hidden)),
            false => hidden,
        };
        ops.reshape(&read, &[self.geometry.width])
    }
}

impl Network for Encoder {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, pooled, .. } = self.geometry;
        let layers = [
            ("attn.q", width, width),
            ("attn.k", width, width),
            ("attn.v", width, width),
            ("attn.proj", width, width),
            ("mlp.fc", width, mlp),
            ("mlp.proj", mlp, width),
        ];
        let mut all = Slot::of_blocks(blocks, &layers);
        let (name, target, kind) = (POOLER.to_string(), POOLER.to_string(), SlotKind::Linear);
        all.extend(pooled.then_some(Slot { name, target, kind, inputs: width, outputs: width, stage: blocks }));
        all
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.geometry.blocks
    }

    fn stage_of(&self, name: &str) -> usize {
        match block_of(name) {
            Some(block) => block,
            None if name.starts_with(POOLER) => self.geometry.blocks,
            None => 0,
        }
    }

    fn feature_width(&self) -> i64 {
        self.geometry.width
    }

    /// Returns the shapes of a stage's input for one text, of one token after the last stage.
    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        let tokens = if stage == self.geometry.blocks { 1 } else { self.tokens };
        Texts::entering(tokens, self.geometry.width)
    }

    runs_its_pass!();

    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let Geometry { width, blocks, .. } = self.geometry;
        let embeds = [EMBEDDING, "position", "kind", "ln_pre"];
        let (tokens, attended) = (self.tokens, width);
        Pass { network: self, width, attended, blocks, tokens, embeds: &embeds, base, flows: false, kind, graph }.need()
    }
}

/// The keys that are read.
const KEYS: &[&str] = &[
    "architectures",
    "hidden_act",
    "hidden_size",
    "id2label",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_labels",
    "pad_token_id",
    "position_embedding_type",
    "type_vocab_size",
    "vocab_size",
];

/// The keys that change no features besides those of every network: those of training.
const HARMLESS: &[&str] = &[
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "initializer_range",
    "tie_word_embeddings",
    "use_cache",
];

/// The sizes and settings of a network.
#[derive(Clone, Debug)]
pub struct Geometry {
    pub vocabulary: i64,
    /// The width of hidden states, d.
    pub width: i64,
    /// The width of the hidden values of an MLP.
    pub mlp: i64,
    pub blocks: usize,
    pub heads: i64,
    /// The rows of the table of positions.
    pub positions: i64,
    /// The kinds of tokens.
    pub kinds: i64,
    /// The token of padding.
    pub padding: i64,
    pub eps: f64,
    pub activation: Activation,
    /// Whether there is a layer on the first token, whose outputs are the features.
    pub pooled: bool,
    pub family: &'static encoders::Encoder,
}

impl Geometry {
    /// Reads a config; `pooled` says whether the weights have the layer on the first token.
    ///
    /// # Errors
    /// Fails if a value is malformed, or asks for what bella does not compute.
    pub fn read(values: &Values, family: &'static encoders::Encoder, pooled: bool) -> Result<Geometry> {
        let shown = values.path.display();
        let known = [KEYS, HARMLESS, HARMLESS_ANYWHERE].concat();
        values.expect_keys(&format!("a text encoder of model_type {}", family.model_type), &known)?;
        let places = values.text("position_embedding_type").unwrap_or("absolute");
        ensure!(
            places == "absolute",
            "{shown}: position_embedding_type = \"{places}\" is none that bella computes for a text encoder; known: absolute"
        );
        let Sizes { vocabulary, positions, kinds, padding } = family.usual;
        let (width, heads) = (values.integer("hidden_size", 768)?, values.integer("num_attention_heads", 12)?);
        ensure!(width % heads == 0, "{shown}: num_attention_heads = {heads}: must divide hidden_size = {width}");
        let geometry = Geometry {
            vocabulary: values.integer("vocab_size", vocabulary)?,
            width,
            mlp: values.integer("intermediate_size", 3072)?,
            blocks: values.integer("num_hidden_layers", 12)? as usize,
            heads,
            positions: values.integer("max_position_embeddings", positions)?,
            kinds: values.integer("type_vocab_size", kinds)?,
            padding: values.count("pad_token_id", padding)?,
            eps: values.number("layer_norm_eps", 1e-12)?,
            activation: values.activation("gelu")?,
            pooled,
            family,
        };
        ensure!(
            geometry.context() > 0,
            "{shown}: max_position_embeddings = {}: leaves no position for a token",
            geometry.positions
        );
        Ok(geometry)
    }

    /// Returns the most tokens of a text.
    pub fn context(&self) -> i64 {
        match self.family.numbering {
            Numbering::Columns => self.positions,
            Numbering::BehindPadding => self.positions - self.padding - 1,
        }
    }
}

/// Checks that the class that saved a classifier reads the first token by it.
///
/// # Errors
/// Fails at a class that reads something else, such as every token.
pub fn check_classifier(values: &Values) -> Result<()> {
    let all = values.get("architectures").and_then(Value::as_array);
    let mut named = all.into_iter().flatten().filter_map(Value::as_str);
    let other = named.find(|class| !class.ends_with("ForSequenceClassification"));
    ensure!(
        other.is_none(),
        "{}: architectures has {}, whose classifier reads something else than a text as a whole; known: …ForSequenceClassification",
        values.path.display(),
        other.unwrap_or_default()
    );
    Ok(())
}
