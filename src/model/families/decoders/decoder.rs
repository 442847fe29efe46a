//! The entry of a family of decoders: dense language networks with rotary positions and gated MLPs.

use anyhow::Result;
use serde_json::Value;

use crate::model::families::class::{Class, Layers, Outer, Published, TOWER, reading};
use crate::model::families::names::{EMBEDDING, Names, OUTPUT, Pair};
use crate::model::network::ops::Activation;
use crate::model::values::Values;

/// A family of decoders, a class of transformers.
#[derive(Debug)]
pub struct Decoder {
    pub model_type: &'static str,
    /// Networks of this type, for people.
    pub about: &'static str,
    /// The class that a publisher's config names.
    pub architecture: &'static str,
    /// The class that an exported network is loaded in.
    pub class: &'static Class,
    pub names: &'static Names,
    /// The sizes that absent keys mean.
    pub usual: Sizes,
    /// The keys that are read besides those of every family.
    pub keys: &'static [&'static str],
    /// The keys that change no logits, besides those of every family.
    pub harmless: &'static [&'static str],
    /// Returns the parts that a config calls for.
    pub traits: fn(&Values) -> Result<Traits>,
    /// The published networks, for plans and rehearsals.
    pub published: &'static [Published],
}

/// The sizes of a network.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub vocabulary: i64,
    pub width: i64,
    /// The width of the hidden values of an MLP.
    pub mlp: i64,
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

/// The parts of a network that distinguish it from others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traits {
    pub biases: Biases,
    /// Whether queries and keys are normalised, each head by itself.
    pub head_norms: bool,
    /// The activation of the gate.
    pub activation: Activation,
    /// The number of tokens that a token looks back at, if there is a limit.
    pub window: Option<i64>,
}

/// The layers that have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    pub qkv: bool,
    pub attention_proj: bool,
    pub mlp: bool,
}

/// The layers of a block that every family has.
pub(super) const BLOCK: [Pair; 9] = [
    ("input_layernorm", "ln_1"),
    ("self_attn.q_proj", "attn.q"),
    ("self_attn.k_proj", "attn.k"),
    ("self_attn.v_proj", "attn.v"),
    ("self_attn.o_proj", "attn.proj"),
    ("post_attention_layernorm", "ln_2"),
    ("mlp.gate_proj", "mlp.gate"),
    ("mlp.up_proj", "mlp.fc"),
    ("mlp.down_proj", "mlp.proj"),
];

/// The names of Llama's layers. Its prefixes are those within LLaVA in transformers 4 and 5, of a network with its output matrix,
/// and of one that is stored without it.
pub(super) const NAMES: Names = Names {
    prefixes: &["language_model.model.", "model.language_model.", "language_model.", "model.", ""],
    blocks: "layers.",
    layers: &BLOCK,
    around: &[("embed_tokens", EMBEDDING), ("norm", "ln_post"), ("lm_head", OUTPUT)],
};

/// The layer of the output matrix in classes that write texts.
pub(super) const OUTPUT_LAYER: Outer = Outer { layer: OUTPUT, prefix: "", end: "lm_head" };

/// The class that every decoder is loaded in.
pub(super) const CLASS: Class = Class {
    prefix: ["model.", "model."],
    around: &[OUTPUT_LAYER],
    layers: Layers::Named(&NAMES),
    writes: true,
    ..reading("AutoModelForCausalLM", "hidden_states[-1]", TOWER)
};

/// The facts that most families share, which are Llama's.
pub(super) const USUAL: Decoder = Decoder {
    model_type: "",
    about: "",
    architecture: "",
    class: &CLASS,
    names: &NAMES,
    usual: Sizes {
        vocabulary: 32_000,
        width: 4096,
        mlp: 11_008,
        blocks: 32,
        heads: 32,
        key_heads: None,
        channels: None,
        context: 2048,
        eps: 1e-6,
        theta: 1e4,
    },
    keys: &[],
    harmless: &[],
    traits: Traits::plain,
    published: &[],
};

impl Traits {
    /// Returns those of a network without biases, by the keys that every family reads.
    ///
    /// # Errors
    /// Fails if bella does not compute the activation.
    pub(super) fn plain(values: &Values) -> Result<Traits> {
        let activation = values.activation("silu")?;
        Ok(Traits { biases: Biases::default(), head_norms: false, activation, window: None })
    }
}

/// Returns the window in `sliding_window`. `null` switches the window off; an absent key means the default.
pub(super) fn window(values: &Values, default: i64) -> Result<Option<i64>> {
    match values.table().get("sliding_window") {
        Some(Value::Null) => Ok(None),
        _ => values.integer("sliding_window", default).map(Some),
    }
}

/// Returns the window in `sliding_window` if `use_sliding_window` is true.
pub(super) fn window_if_asked(values: &Values, default: i64) -> Result<Option<i64>> {
    if values.flag("use_sliding_window", false)? { window(values, default) } else { Ok(None) }
}
