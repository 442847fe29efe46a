//! The sizes and settings of a text encoder in `config.json`, with the defaults of its family for absent keys.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::model::families::HARMLESS_ANYWHERE;
use crate::model::families::encoders::{Encoder, Numbering, Sizes};
use crate::model::network::ops::Activation;
use crate::model::values::Values;

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
    pub family: &'static Encoder,
}

impl Geometry {
    /// Reads a config; `pooled` says whether the weights have the layer on the first token.
    ///
    /// # Errors
    /// Fails if a value is malformed, or asks for what bella does not compute.
    pub fn read(values: &Values, family: &'static Encoder, pooled: bool) -> Result<Geometry> {
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
