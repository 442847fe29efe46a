//! The `config.json` of a stand-in: the publisher's, with every size written out.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::tokenizer::{END, START, Vocabulary};
use crate::model::Normalize;
use crate::model::described::Published;
use crate::model::families::decoders::architecture;
use crate::model::language::Geometry;
use crate::model::{language, llava};

/// The size of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Published,
    /// Few narrow blocks.
    Tiny,
    /// Narrow blocks, but as many as published, since configs may select among them.
    TinyBlocks,
}

/// The blocks of a tiny network.
const BLOCKS: usize = 4;

/// Returns the config of a network that knows the tokens of a vocabulary.
///
/// # Errors
/// Fails if the network's vocabulary is too small.
pub fn of(published: &Published, size: Size, vocabulary: &Vocabulary) -> Result<Value> {
    let mut config = published.config()?;
    let values = published.values()?;
    let mut geometry = match vocabulary.image() {
        Some(_) => llava::described(&values, None, Normalize::CLIP)?.language.geometry,
        None => language::described(&values, None)?.geometry,
    };
    let tokens = vocabulary.tokens() as i64;
    if size != Size::Published {
        geometry = tiny(&geometry, size, tokens);
    }
    ensure!(
        tokens <= geometry.vocabulary,
        "{}: knows {} tokens, and the stand-in's words, bytes and label words are {tokens}: use fewer label words",
        published.about,
        geometry.vocabulary
    );
    let class = config["model_type"].as_str().and_then(architecture);
    let class = class.with_context(|| format!("{}: its class is not known", published.about))?;
    config["architectures"] = json!([class]);
    if let Some(image) = vocabulary.image() {
        see(&mut config, size, image);
    }
    let text = if vocabulary.image().is_some() { &mut config["text_config"] } else { &mut config };
    let keys = geometry.family.spelling;
    let always = [
        ("vocab_size", geometry.vocabulary),
        (keys.width, geometry.width),
        (keys.mlp, geometry.mlp),
        (keys.blocks, geometry.blocks as i64),
        (keys.heads, geometry.heads),
        ("bos_token_id", START),
        ("eos_token_id", END),
    ];
    let some = [(keys.key_heads, geometry.key_heads), (keys.channels, geometry.channels)];
    for (key, value) in always.into_iter().chain(some.into_iter().filter_map(|(key, value)| Some((key?, value)))) {
        text[key] = json!(value);
    }
    Ok(config)
}

/// Returns the same network with width 64 for few tokens. Its keys have at least 16 channels, since low-rank updates of usual ranks
/// need as many.
fn tiny(geometry: &Geometry, size: Size, tokens: i64) -> Geometry {
    let heads = 8;
    let key_heads = (heads * geometry.key_heads / geometry.heads).max(2);
    let vocabulary = (tokens + 63) / 64 * 64;
    let blocks = if size == Size::TinyBlocks { geometry.blocks } else { BLOCKS };
    Geometry { vocabulary, width: 64, blocks, mlp: 128, heads, key_heads, channels: 64 / heads, ..geometry.clone() }
}

/// Writes how the image enters.
fn see(config: &mut Value, size: Size, image: i64) {
    let vision = &mut config["vision_config"];
    if size != Size::Published {
        for (key, value) in [
            ("hidden_size", 32),
            ("intermediate_size", 64),
            ("num_attention_heads", 4),
            ("num_hidden_layers", 3),
            ("image_size", 16),
            ("patch_size", 8),
            ("projection_dim", 16),
        ] {
            vision[key] = json!(value);
        }
    }
    vision["model_type"] = json!("clip_vision_model");
    let side = vision["image_size"].as_i64().unwrap_or(0) / vision["patch_size"].as_i64().unwrap_or(1).max(1);
    config["image_seq_length"] = json!(side * side);
    config["image_token_index"] = json!(image);
    config["vision_feature_layer"] = json!(-2);
    config["vision_feature_select_strategy"] = json!("default");
}
