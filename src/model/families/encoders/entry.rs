//! The entry of a family of text encoders: transformers with learnt positions whose norms follow their sublayers.

use crate::model::families::class::{Class, Layers, TOWER, reading};
use crate::model::families::names::{EMBEDDING, Names, Pair};
use crate::model::stored::StoredNames;

/// A family of text encoders, a class of transformers.
#[derive(Debug)]
pub struct Encoder {
    pub model_type: &'static str,
    /// Networks of this type, for people.
    pub about: &'static str,
    pub names: &'static Names,
    /// The class that an exported network is loaded in, with a classifier behind the layer on the first token.
    pub class: &'static Class,
    /// The class of a network without that layer, whose features are the first token's.
    pub bare: &'static Class,
    /// The sizes that absent keys mean.
    pub usual: Sizes,
    pub numbering: Numbering,
    /// The starts of names of tensors that are not read, without the network's prefix: those of the heads of other classes.
    pub unread: &'static [&'static str],
}

/// The sizes of a network.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub vocabulary: i64,
    /// The rows of the table of positions.
    pub positions: i64,
    /// The kinds of tokens: those of the first text of a pair, and of the second.
    pub kinds: i64,
    /// The token of padding.
    pub padding: i64,
}

/// The row of a token's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// The number of its column.
    Columns,
    /// The number of the token among those that are no padding, behind the row of the padding token.
    BehindPadding,
}

/// The layers of a block that every family has.
const BLOCK: [Pair; 8] = [
    ("attention.self.query", "attn.q"),
    ("attention.self.key", "attn.k"),
    ("attention.self.value", "attn.v"),
    ("attention.output.dense", "attn.proj"),
    ("attention.output.LayerNorm", "ln_1"),
    ("intermediate.dense", "mlp.fc"),
    ("output.dense", "mlp.proj"),
    ("output.LayerNorm", "ln_2"),
];

/// The embeddings of every family with their norm.
pub(super) const EMBEDDINGS: [Pair; 4] = [
    ("embeddings.word_embeddings", EMBEDDING),
    ("embeddings.position_embeddings", "position"),
    ("embeddings.token_type_embeddings", "kind"),
    ("embeddings.LayerNorm", "ln_pre"),
];

/// Returns the names of a family whose tensors begin with the first of `prefixes`, or with nothing.
pub(super) const fn names(prefixes: &'static [&'static str], around: &'static [Pair]) -> Names {
    Names { prefixes, blocks: "encoder.layer.", layers: &BLOCK, around, turned: &[], unread: &[] }
}

/// Returns the class that classifies texts.
pub(super) const fn classifying(name: &'static str, prefix: &'static str, layers: &'static Names) -> Class {
    Class { prefix: [prefix, prefix], layers: Layers::Named(layers), ..reading(name, "logits", TOWER) }
}

/// Returns the class whose features are the first token's.
pub(super) const fn bare(name: &'static str, layers: &'static Names) -> Class {
    Class { layers: Layers::Named(layers), ..reading(name, "last_hidden_state[:, 0]", TOWER) }
}

impl Encoder {
    /// Returns the class that an export is loaded in, of a checkpoint with these names.
    pub fn class(&self, names: &StoredNames) -> &'static Class {
        if names.name_of("pooler.weight").is_some() { self.class } else { self.bare }
    }
}
