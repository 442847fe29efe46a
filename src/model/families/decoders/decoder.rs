//! The entry of a family of decoders: dense language networks.

use anyhow::Result;
use serde_json::Value;

use super::layers::{CLASS, Classes, NAMES};
use super::views::{Seeing, View, all_tokens};
use crate::model::families::class::{Class, Published};
use crate::model::families::names::{HEAD, Names, OUTPUT};
use crate::model::network::ops::{Activation, Scoring};
use crate::model::stored::StoredNames;
use crate::model::values::Values;

/// The keys by which a config states the sizes of a network.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    pub width: &'static str,
    pub mlp: &'static str,
    pub blocks: &'static str,
    pub heads: &'static str,
    /// `None` where each head has keys and values of its own.
    pub key_heads: Option<&'static str>,
    /// `None` where the width is divided by the heads.
    pub channels: Option<&'static str>,
    pub context: &'static str,
    pub eps: &'static str,
}

impl Spelling {
    /// Returns all keys.
    pub fn keys(&self) -> Vec<&'static str> {
        let Spelling { width, mlp, blocks, heads, key_heads, channels, context, eps } = *self;
        [width, mlp, blocks, heads, context, eps].into_iter().chain(key_heads).chain(channels).collect()
    }
}

/// The keys of Llama.
const LLAMA: Spelling = Spelling {
    width: "hidden_size",
    mlp: "intermediate_size",
    blocks: "num_hidden_layers",
    heads: "num_attention_heads",
    key_heads: Some("num_key_value_heads"),
    channels: Some("head_dim"),
    context: "max_position_embeddings",
    eps: "rms_norm_eps",
};

/// A family of decoders, a class of transformers.
#[derive(Debug)]
pub struct Decoder {
    pub model_type: &'static str,
    /// Networks of this type, for people.
    pub about: &'static str,
    /// The class that a publisher's config names.
    pub architecture: &'static str,
    /// The classes that exported networks are loaded in.
    pub classes: &'static Classes,
    /// The class by which transformers reads tokenizers of folders that name none, where it takes settings that `tokenizer.json` states, too.
    pub tokenizer: Option<&'static str>,
    pub names: &'static Names,
    /// The keys of sizes.
    pub spelling: Spelling,
    /// The sizes that absent keys mean.
    pub usual: Sizes,
    /// Whether the embeddings are also the output matrix where no key tells.
    pub tied: bool,
    pub positions: Positions,
    /// The keys that are read besides those of every family.
    pub keys: &'static [&'static str],
    /// The keys that change no logits, besides those of every family.
    pub harmless: &'static [&'static str],
    /// The keys that change logits in a way that bella does not compute.
    pub refused: &'static [&'static str],
    /// Returns the parts that a config calls for.
    pub traits: fn(&Values) -> Result<Traits>,
    /// Returns what tokens see in each block.
    pub views: fn(&Values, Seeing) -> Result<Vec<View>>,
    /// The published networks, for plans and rehearsals.
    pub published: &'static [Published],
}

/// The sizes of a network.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub vocabulary: i64,
    pub width: i64,
    /// The width of the hidden values of an MLP; four times the width if it is `None`.
    pub mlp: Option<i64>,
    pub blocks: i64,
    pub heads: i64,
    /// The number of heads of keys and values; as many as there are heads if it is `None`.
    pub key_heads: Option<i64>,
    /// The number of channels of a head; the width divided by the heads if it is `None`.
    pub channels: Option<i64>,
    /// The most tokens of a text.
    pub context: i64,
    pub eps: f64,
    /// The base of rotary positions.
    pub theta: f64,
}

/// The way in which a token knows its position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// A table of embeddings that is added to those of tokens.
    Learned,
    /// Queries and keys are turned, by the same angles in every block.
    Rotary,
    /// The same, of the first channels of a head alone where `partial_rotary_factor` says so, and with the scaling of Phi-3.
    RotaryInPart,
    /// Blocks that see all tokens have a base, those with a window another one, of this default.
    RotaryOfTwoBases { local: f64 },
}

/// The parts of a network that distinguish it from others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traits {
    pub biases: Biases,
    pub norm: NormKind,
    pub norms: NormPlaces,
    pub head_norms: HeadNorms,
    /// Whether queries, keys and values are one layer, in this order.
    pub is_qkv_fused: bool,
    pub mlp: Mlp,
    /// The activation of the MLP, in a gated one that of the gate.
    pub activation: Activation,
    /// Whether embeddings are multiplied by the square root of the width.
    pub scales_embeddings: bool,
    pub scoring: Scoring,
    /// The bound c of logits, c tanh(z / c).
    pub logit_cap: Option<f64>,
}

/// The layers that have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    pub qkv: bool,
    pub attention_proj: bool,
    pub mlp: bool,
}

/// The norm of hidden states and of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// By the root mean square, times a weight.
    Rms,
    /// By the root mean square, times 1 + a weight.
    RmsAroundOne,
    /// Layer norm.
    Layer,
}

/// The places of norms around attention and MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlaces {
    Before,
    /// Before what they read is added to the hidden states.
    After,
    Both,
}

/// The norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    None,
    /// Each head is normalised by itself.
    Each,
    /// All heads are normalised together.
    Together,
}

/// The first layers of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// A gate and what it multiplies.
    Gated,
    /// Both in one layer, the gate first.
    GatedInOne,
    Plain,
}

/// The facts that most families share, which are Llama's.
pub(super) const USUAL: Decoder = Decoder {
    model_type: "",
    about: "",
    architecture: "",
    classes: &Classes::beside(CLASS),
    names: &NAMES,
    tokenizer: None,
    spelling: LLAMA,
    usual: Sizes {
        vocabulary: 32_000,
        width: 4096,
        mlp: Some(11_008),
        blocks: 32,
        heads: 32,
        key_heads: None,
        channels: None,
        context: 2048,
        eps: 1e-6,
        theta: 1e4,
    },
    tied: false,
    positions: Positions::Rotary,
    keys: &[],
    harmless: &[],
    refused: &[],
    traits: |values| Traits::plain(values, "hidden_act", "silu"),
    views: all_tokens,
    published: &[],
};

impl Decoder {
    /// Returns the start of the names of its parameters in the class that publishers save.
    pub fn prefix(&self) -> &'static str {
        self.classes.writing.prefix[1]
    }

    /// Returns the class that an export is loaded in, of a checkpoint with these config and names.
    pub fn class(&self, config: &Value, names: &StoredNames) -> &'static Class {
        let has = |layer: &str| names.name_of(&format!("{layer}.weight")).is_some();
        let tied = || config["tie_word_embeddings"].as_bool().unwrap_or(self.tied);
        if has(HEAD) {
            &self.classes.classifying
        } else if has(OUTPUT) || tied() {
            &self.classes.writing
        } else {
            &self.classes.bare
        }
    }
}

impl Traits {
    /// Returns those of a network without biases, whose activation is the value of a key.
    ///
    /// # Errors
    /// Fails if bella does not compute the activation.
    pub(super) fn plain(values: &Values, key: &str, activation: &str) -> Result<Traits> {
        Ok(Traits {
            biases: Biases::default(),
            norm: NormKind::Rms,
            norms: NormPlaces::Before,
            head_norms: HeadNorms::None,
            is_qkv_fused: false,
            mlp: Mlp::Gated,
            activation: values.activation_of(key, activation)?,
            scales_embeddings: false,
            scoring: Scoring::default(),
            logit_cap: None,
        })
    }
}
