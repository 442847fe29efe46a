//! The entry of a family of text encoders.

use anyhow::Result;

use crate::model::families::class::{Class, Layers, Outer, Published, TOWER, reading};
use crate::model::families::names::{EMBEDDING, Names, Pair};
use crate::model::network::ops::Activation;
use crate::model::stored::StoredNames;
use crate::model::values::Values;
use crate::schema::words;

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
    /// The class by which transformers reads tokenizers of folders that name none, where it takes settings that `tokenizer.json` states, too.
    pub tokenizer: Option<&'static str>,
    pub numbering: Numbering,
    pub spelling: Spelling,
    /// The keys that are read besides those of every family.
    pub keys: &'static [&'static str],
    /// The keys that change no features, besides those of every family.
    pub harmless: &'static [&'static str],
    /// The keys that change features in a way that bella does not compute.
    pub refused: &'static [&'static str],
    /// Returns the parts that a config calls for.
    pub traits: fn(&Values, Shape) -> Result<Traits>,
    /// The starts of names of tensors that are not read, without the network's prefix: those of the heads of other classes.
    pub unread: &'static [&'static str],
    /// The published networks, for plans and rehearsals.
    pub published: &'static [Published],
}

impl Encoder {
    /// Returns whether transformers' classes have a table of kinds of tokens. Those without one do not read `type_vocab_size`.
    pub fn has_kinds(&self) -> bool {
        self.names.around.iter().any(|(_, own)| *own == "kind")
    }
}

/// The sizes of a network, and its activation.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub vocabulary: i64,
    pub width: i64,
    /// The width of the hidden values of an MLP.
    pub mlp: i64,
    pub blocks: i64,
    pub heads: i64,
    /// The rows of the table of positions, or the most tokens of a text without such a table.
    pub positions: i64,
    /// The kinds of tokens: those of the first text of a pair, and of the second; 0 without a table of them.
    pub kinds: i64,
    /// The token of padding.
    pub padding: i64,
    pub eps: f64,
    pub activation: &'static str,
}

/// The keys that families spell in their own ways.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    pub width: &'static str,
    pub mlp: &'static str,
    pub blocks: &'static str,
    pub heads: &'static str,
    /// The key of the number that norms add to a variance; `None` where no config says it.
    pub eps: Option<&'static str>,
    pub activation: &'static str,
}

impl Spelling {
    /// Returns all keys.
    pub fn keys(&self) -> Vec<&'static str> {
        let Spelling { width, mlp, blocks, heads, eps, activation } = *self;
        [width, mlp, blocks, heads, activation].into_iter().chain(eps).collect()
    }
}

/// The numbers of a network that its parts depend on.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub width: i64,
    pub blocks: usize,
    /// The channels of a head.
    pub channels: i64,
    /// The most tokens of a text.
    pub positions: i64,
}

/// The parts of a network that distinguish it from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Traits {
    /// Whether norms stand before attention and MLP, and behind the last block. They follow both otherwise.
    pub norms_first: bool,
    pub biases: Biases,
    /// The width of the embeddings, where a layer brings them to that of hidden states.
    pub embedded: Option<i64>,
    /// The number of groups of consecutive blocks, where the blocks of a group share their weights.
    pub groups: Option<usize>,
    /// Whether queries, keys and values are one layer, and the activated half of the MLP and its factor another one.
    pub is_fused: bool,
    pub places: Places,
    pub readout: Readout,
}

/// The parts that have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    pub norms: bool,
    pub attention: bool,
    pub mlp: bool,
    /// Those of the layer by which a whole text is read.
    pub readout: bool,
}

/// The way in which tokens know their places.
#[derive(Clone, Debug, PartialEq)]
pub enum Places {
    /// A table of embeddings that is added to those of tokens.
    Learned,
    /// A table of embeddings as in [`Places::Learned`], and a learnt number for each head and bucket of distances, which is added to scores
    /// (Raffel et al. 2020, arXiv 1910.10683). The table has so many rows, and distances from `most` on share the last bucket.
    Relative { rows: i64, buckets: i64, most: i64 },
    /// Scores of distances (He et al. 2021, arXiv 2006.03654), with a table of positions beside them if `learned` is true.
    Disentangled { distances: Distances, learned: bool },
    /// Queries and keys are turned. The blocks in `local` read the tokens at a distance of at most `reach`, and have a base of their own.
    Turned { bases: [f64; 2], local: Vec<bool>, reach: i64 },
}

/// The distances of disentangled attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distances {
    /// The number of buckets of each sign, which are the rows of the table; `None` where each distance has a row.
    pub buckets: Option<i64>,
    /// The largest distance.
    pub most: i64,
    /// Whether queries read the distances of keys.
    pub from_queries: bool,
    /// Whether keys read the distances of queries.
    pub from_keys: bool,
    /// Whether the table is normalised.
    pub normed: bool,
}

words! {
    /// The features of a text.
    pub enum Features {
        /// The hidden state of the first token.
        First = "first",
        /// The mean of the hidden states of all tokens.
        Mean = "mean",
        /// The outputs of the layer that the class for classification has in front of its classifier.
        Pooled = "pooled",
    }
}

/// The layer that the class for classification has in front of its classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readout {
    pub activation: Activation,
    /// Whether a norm follows the activation.
    pub normed: bool,
    /// Whether it reads the mean of all tokens, and not the first one.
    pub mean: bool,
}

impl Distances {
    /// Returns half of the rows of the table.
    pub fn span(&self) -> i64 {
        self.buckets.unwrap_or(self.most)
    }
}

impl Traits {
    /// Returns those of BERT.
    pub(super) fn plain() -> Traits {
        Traits {
            norms_first: false,
            biases: Biases { norms: true, attention: true, mlp: true, readout: true },
            embedded: None,
            groups: None,
            is_fused: false,
            places: Places::Learned,
            readout: Readout { activation: Activation::Tanh, normed: false, mean: false },
        }
    }
}

/// The keys of most families.
pub(super) const PLAIN: Spelling = Spelling {
    width: "hidden_size",
    mlp: "intermediate_size",
    blocks: "num_hidden_layers",
    heads: "num_attention_heads",
    eps: Some("layer_norm_eps"),
    activation: "hidden_act",
};

/// The sizes of BERT.
pub(super) const BASE: Sizes = Sizes {
    vocabulary: 30_522,
    width: 768,
    mlp: 3072,
    blocks: 12,
    heads: 12,
    positions: 512,
    kinds: 2,
    padding: 0,
    eps: 1e-12,
    activation: "gelu",
};

/// Returns the traits of BERT, whose positions are absolute.
pub(super) fn plain(values: &Values, _: Shape) -> Result<Traits> {
    let places = values.text("position_embedding_type").unwrap_or("absolute");
    anyhow::ensure!(
        places == "absolute",
        "{}: position_embedding_type = \"{places}\" is none that bella computes for a text encoder; known: absolute",
        values.path.display()
    );
    Ok(Traits::plain())
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
pub(super) const BLOCK: [Pair; 8] = [
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

/// The layer by which a text is read as a whole.
pub const POOLER: &str = "pooler";

/// The norm behind that layer.
pub const POOLER_NORM: &str = "ln_pooler";

/// The layer that brings embeddings to the width of hidden states.
pub const EMBEDDING_PROJ: &str = "embed_proj";

/// The table of a learnt number for each head and bucket of distances.
pub const RELATIVE: &str = "relative";

/// The layer on the first token of classes whose classifier is a module of two layers. It lies outside of the network.
pub(super) static CLASSIFIER_DENSE: [Outer; 1] = [Outer { layer: POOLER, prefix: "", end: "classifier.dense" }];

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
    /// Returns the path in the class for classification of the layer in front of its classifier.
    pub fn path_of_pooler(&self) -> String {
        let outer = self.class.around.iter().find(|outer| outer.layer == POOLER);
        let inner = || format!("{}{}", self.class.prefix[0], self.names.path(POOLER).unwrap_or_default());
        outer.map_or_else(inner, |outer| format!("{}{}", outer.prefix, outer.end))
    }

    /// Returns the path there of the norm behind that layer.
    pub fn path_of_pooler_norm(&self) -> String {
        let outer = self.class.around.iter().find(|outer| outer.layer == POOLER);
        let prefix = outer.map_or(self.class.prefix[0], |outer| outer.prefix);
        format!("{prefix}{}", self.names.path(POOLER_NORM).unwrap_or_default())
    }

    /// Returns the class that an export is loaded in, of a checkpoint with these names.
    pub fn class(&self, names: &StoredNames) -> &'static Class {
        if names.name_of("pooler.weight").is_some() { self.class } else { self.bare }
    }
}
