//! The names of the layers of decoders, and the classes of transformers that have them.

use crate::model::families::class::{Class, LastToken, Layers, Outer, TOWER, reading};
use crate::model::families::names::{EMBEDDING, HEAD, Names, OUTPUT, Pair};

/// The layers of a block that most families have.
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

/// The norms of queries and keys.
pub(super) const HEAD_NORMS: [Pair; 2] = [("self_attn.q_norm", "attn.q_norm"), ("self_attn.k_norm", "attn.k_norm")];

/// Returns the N layers of a block that begin with a norm, queries and keys, with the norms of these two behind each: M layers.
pub(super) const fn with_head_norms<const N: usize, const M: usize>(layers: [Pair; N]) -> [Pair; M] {
    let mut all = [layers[0]; M];
    (all[1], all[2], all[3], all[4]) = (layers[1], HEAD_NORMS[0], layers[2], HEAD_NORMS[1]);
    let mut at = 3;
    while at < N {
        all[at + HEAD_NORMS.len()] = layers[at];
        at += 1;
    }
    all
}

/// The classifier of the last token, in the classes of transformers that classify texts.
pub(super) const CLASSIFIER: Pair = ("score", HEAD);

/// The names of Llama's layers. Its prefixes are those within networks that see images in transformers 4 and 5, of a network with its output matrix,
/// and of one that is stored without it.
pub(super) const NAMES: Names = Names {
    prefixes: &["language_model.model.", "model.language_model.", "language_model.", "model.", ""],
    blocks: "layers.",
    layers: &BLOCK,
    around: &[("embed_tokens", EMBEDDING), ("norm", "ln_post"), ("lm_head", OUTPUT), CLASSIFIER],
    turned: &[],
    unread: &[".rotary_emb.inv_freq"],
};

/// The layer of the output matrix in classes that write texts.
pub const OUTPUT_LAYER: Outer = Outer { layer: OUTPUT, prefix: "", end: "lm_head" };

/// The class that most decoders are loaded in.
pub const CLASS: Class = Class {
    prefix: ["model.", "model."],
    around: &[OUTPUT_LAYER],
    layers: Layers::Named(&NAMES),
    last_token: Some(LastToken::Words),
    ..reading("AutoModelForCausalLM", "hidden_states[-1]", TOWER)
};

/// The classes that networks of a family are loaded in.
#[derive(Debug)]
pub struct Classes {
    /// The class of a network with its output matrix.
    pub writing: Class,
    /// The class of a network that has a classifier of the last token in place of the matrix.
    pub classifying: Class,
    /// The class of a network that has neither.
    pub bare: Class,
}

impl Classes {
    /// Returns those beside the class of networks with their output matrix.
    pub(super) const fn beside(writing: Class) -> Classes {
        let around = &[];
        let last_token = Some(LastToken::Classes(CLASSIFIER.0));
        let classifying = Class { name: "AutoModelForSequenceClassification", around, last_token, ..writing };
        let (features, last_token) = ("last_hidden_state", Some(LastToken::Features));
        let bare = Class { name: "AutoModel", prefix: ["", ""], around, features, last_token, ..writing };
        Classes { writing, classifying, bare }
    }
}
