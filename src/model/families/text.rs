//! The text towers beside the image towers of CLIP and SigLIP in transformers.

use anyhow::{Result, ensure};

use super::family::{Family, HARMLESS_ANYWHERE};
use crate::model::values::Values;
use crate::model::vit::Traits;
use crate::model::vit::text::{TextGeometry, TextStyle};

/// The keys that are read.
const KEYS: &[&str] = &[
    "model_type",
    "vocab_size",
    "max_position_embeddings",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "layer_norm_eps",
    "projection_size",
    "projection_dim",
];

/// The keys that change no features; those of the end of texts are checked apart.
const HARMLESS: &[&str] =
    &["attention_dropout", "dropout", "id2label", "initializer_factor", "initializer_range", "tie_word_embeddings"];

/// The end of texts by which transformers reads CLIP at the largest token, as older configs have it.
const LARGEST: i64 = 2;

/// The defaults of a style.
struct Usual {
    width: i64,
    mlp: i64,
    heads: i64,
    vocabulary: i64,
    context: i64,
}

impl Family {
    /// Returns the traits of the text tower of a config with two towers, whose weights have this geometry.
    ///
    /// # Errors
    /// Fails if a value is malformed, if a key may change the features in a way that bella does not know, or if the weights have
    /// other sizes.
    pub fn text_traits(&self, outer: &Values, geometry: &TextGeometry) -> Result<Traits> {
        let text = outer.tower("text");
        text.expect_keys("a text tower", &[KEYS, HARMLESS, HARMLESS_ANYWHERE].concat())?;
        let shown = outer.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let usual = match geometry.style {
            TextStyle::Clip => Usual { width: 512, mlp: 2048, heads: 8, vocabulary: 49_408, context: 77 },
            TextStyle::Siglip => Usual { width: 768, mlp: 3072, heads: 12, vocabulary: 32_000, context: 64 },
        };
        let width = text.integer("hidden_size", usual.width)?;
        let output = match geometry.style {
            TextStyle::Clip => outer.integer("projection_dim", 512)?,
            TextStyle::Siglip => text.integer("projection_size", width)?,
        };
        let vocabulary = text.integer("vocab_size", usual.vocabulary)?;
        for (key, said, found) in [
            ("hidden_size", width, geometry.width),
            ("intermediate_size", text.integer("intermediate_size", usual.mlp)?, geometry.mlp),
            ("num_hidden_layers", text.integer("num_hidden_layers", 12)?, geometry.blocks as i64),
            ("vocab_size", vocabulary, geometry.vocabulary),
            ("max_position_embeddings", text.integer("max_position_embeddings", usual.context)?, geometry.context),
            ("the width of the projection", output, geometry.output),
        ] {
            ensure!(
                said == found,
                "{shown} says {key} = {said} of the text tower, but the weights have {found}: they are not of one model"
            );
        }
        if geometry.style == TextStyle::Clip {
            check_end(&text, &shown, vocabulary)?;
        }
        Ok(Traits {
            heads: text.integer("num_attention_heads", usual.heads)?,
            activation: text.activation(self.activation)?,
            eps: text.number("layer_norm_eps", self.eps)?,
        })
    }
}

/// Checks that a text ends with the token at which CLIP reads it.
fn check_end(text: &Values, shown: &str, vocabulary: i64) -> Result<()> {
    let end = text.count("eos_token_id", 49_407)?;
    ensure!(
        [LARGEST, vocabulary - 1].contains(&end),
        "{shown} says eos_token_id = {end} of the text tower: bella reads texts at the last token of the vocabulary, {}",
        vocabulary - 1
    );
    Ok(())
}
