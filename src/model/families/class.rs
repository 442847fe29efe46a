//! The classes in which transformers loads exported networks, and the names of their layers (transformers 4.57 and 5.23).

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::model::families::names::Names;
use crate::model::network::Slot;
use crate::model::values::Values;

/// The component of the paths of an image tower's layers inside of a network that writes texts.
pub(super) const SIGHT: &str = "vision_tower";

/// The names of a transformers model's layers in one generation of the package.
#[derive(Debug)]
pub struct Style {
    /// The path before the number of a block.
    pub blocks: &'static str,
    pub queries: [&'static str; 3],
    pub attention_proj: &'static str,
    pub fc: &'static str,
    pub gate: &'static str,
    /// The layer that holds gate and value one above the other, where the generation has one in a gated MLP.
    pub packed: Option<&'static str>,
    pub proj: &'static str,
    /// The last layer of a gated MLP.
    pub gated_proj: &'static str,
}

/// A class of transformers that an exported network is loaded in.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    pub name: &'static str,
    /// The prefix of the network in that class, in versions 4 and 5.
    pub prefix: [&'static str; 2],
    /// The layer of the class that is the classifier; without one, the head stays beside the model.
    pub classifier: Option<&'static str>,
    /// The width of what the classifier reads, as a multiple of the network's width.
    pub reads: i64,
    /// The attribute of the model's output that holds the features.
    pub features: &'static str,
    /// What the class must be told when it is loaded, besides the type.
    pub options: &'static str,
    /// Whether the class must be asked to resize its position embeddings.
    pub asks_to_resize: bool,
    pub layers: Layers,
    /// The layers outside of the blocks.
    pub around: &'static [Outer],
    /// A part with blocks of its own.
    pub inner: Option<&'static Inner>,
    /// The output that the class of a decoder gives for the last token of a text; `None` for other networks.
    pub last_token: Option<LastToken>,
}

/// The output that a class gives for the last token of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastToken {
    /// The logits of the token that may follow.
    Words,
    /// The logits of classes, by this layer of the class.
    Classes(&'static str),
    /// Features alone.
    Features,
}

/// The names of the layers of blocks.
#[derive(Clone, Copy, Debug)]
pub enum Layers {
    /// Those in versions 4 and 5.
    Styles(&'static [Style; 2]),
    /// Those of a network of texts, in every version.
    Named(&'static Names),
}

/// A layer outside of the blocks.
#[derive(Debug)]
pub struct Outer {
    /// Its canonical name.
    pub layer: &'static str,
    /// The start of its path in the class.
    pub prefix: &'static str,
    /// The end of its path, which it has in other classes, too.
    pub end: &'static str,
}

/// A part of a network with blocks of its own.
#[derive(Debug)]
pub struct Inner {
    /// The start of the canonical names of its layers.
    pub part: &'static str,
    /// The prefix of its paths in versions 4 and 5.
    pub prefix: [&'static str; 2],
    pub styles: &'static [Style; 2],
}

const SPLIT: [&str; 3] = ["attention.q_proj", "attention.k_proj", "attention.v_proj"];
const QUERY: [&str; 3] = ["attention.attention.query", "attention.attention.key", "attention.attention.value"];
const SELF: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];

const fn style(blocks: &'static str, queries: [&'static str; 3], others: [&'static str; 3]) -> Style {
    let [attention_proj, fc, proj] = others;
    Style {
        blocks,
        queries,
        attention_proj,
        fc,
        gate: "mlp.gate_proj",
        packed: None,
        proj,
        gated_proj: "mlp.down_proj",
    }
}

pub(super) const VIT: &[Style; 2] = &[
    style("encoder.layer.", QUERY, ["attention.output.dense", "intermediate.dense", "output.dense"]),
    style("layers.", SPLIT, ["attention.o_proj", "mlp.fc1", "mlp.fc2"]),
];
pub(super) const DINO: &[Style; 2] = &[
    Style {
        packed: Some("mlp.weights_in"),
        gated_proj: "mlp.weights_out",
        ..style("encoder.layer.", QUERY, ["attention.output.dense", "mlp.fc1", "mlp.fc2"])
    },
    style("encoder.layer.", SPLIT, ["attention.o_proj", "mlp.fc1", "mlp.fc2"]),
];
pub(super) const DINO3: &[Style; 2] = &[
    style("layer.", SPLIT, ["attention.o_proj", "mlp.up_proj", "mlp.down_proj"]),
    style("layer.", SPLIT, ["attention.o_proj", "mlp.up_proj", "mlp.down_proj"]),
];
pub(super) const TOWER: &[Style; 2] = &[
    style("encoder.layers.", SELF, ["self_attn.out_proj", "mlp.fc1", "mlp.fc2"]),
    style("encoder.layers.", SELF, ["self_attn.out_proj", "mlp.fc1", "mlp.fc2"]),
];

/// Returns a class with a classifier that reads `reads` times the width of the network.
pub(super) const fn classifying(
    name: &'static str,
    prefix: &'static str,
    reads: i64,
    styles: &'static [Style; 2],
) -> Class {
    let classifier = Some("classifier");
    Class { prefix: [prefix, prefix], classifier, reads, ..reading(name, "logits", styles) }
}

/// Returns a class whose output has the features in an attribute.
pub(super) const fn reading(name: &'static str, features: &'static str, styles: &'static [Style; 2]) -> Class {
    Class {
        name,
        prefix: ["", ""],
        classifier: None,
        reads: 1,
        features,
        options: "",
        asks_to_resize: true,
        layers: Layers::Styles(styles),
        around: &[],
        inner: None,
        last_token: None,
    }
}

impl Class {
    /// Returns whether matrices of layers are stored as `[in, out]`.
    pub fn has_turned_layers(&self) -> bool {
        matches!(&self.layers, Layers::Named(names) if !names.turned.is_empty())
    }

    /// Returns the component of the paths of another part than that of a layer, in which layers end in the same way.
    pub fn stranger(&self, slot: &Slot) -> &'static str {
        let inside = self.inner.is_some_and(|inner| slot.name.starts_with(inner.part));
        if self.last_token.is_some() && !inside { SIGHT } else { "text_model" }
    }
}

/// A published network.
#[derive(Debug)]
pub struct Published {
    pub key: &'static str,
    pub about: &'static str,
    /// Parts of the names of its folders, in lower case. Where a name has parts of several networks, the first one counts.
    pub files: &'static [&'static str],
    /// The keys of `config.json` that tell sizes, without their defaults.
    pub config: &'static str,
}

impl Published {
    /// Returns the publisher's `config.json`, without keys whose values are the defaults.
    ///
    /// # Errors
    /// Fails if the entry is no JSON.
    pub fn config(&self) -> Result<Value> {
        Ok(serde_json::from_str(self.config)?)
    }

    /// Returns the values of that config.
    ///
    /// # Errors
    /// Fails as [`config`](Self::config) does.
    pub fn values(&self) -> Result<Values> {
        Ok(Values::new(Path::new(self.key), self.config()?))
    }
}
