//! What `config.json` says about the image of a LLaVA network, with the defaults of transformers 5.23 for absent keys.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::model::families;
use crate::model::families::decoders::{DECODERS, decoder_of};
use crate::model::folder::quantised::{self, Format};
use crate::model::language::Geometry;
use crate::model::values::Values;
use crate::model::vit::{self, Traits, heads_fit};

/// The keys beside the tables of parts: those that are read, and those that change nothing.
const KEYS: &[&str] = &[
    "architectures",
    "id2label",
    "ignore_index",
    "image_seq_length",
    "image_token_id",
    "image_token_index",
    "initializer_range",
    "model_type",
    "multimodal_projector_bias",
    "num_labels",
    "projector_hidden_act",
    "text_config",
    "tie_word_embeddings",
    "use_cache",
    "vision_config",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "vocab_size",
];

/// How an image enters the language network.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// The id of the token that stands for a patch.
    pub token: i64,
    /// The number of the tower's blocks that are run.
    pub blocks: usize,
    /// Whether the class token is one of the patches.
    pub keeps_class: bool,
    pub traits: Traits,
    /// The number of pixels per side.
    pub image_size: i64,
    /// The number of pixels per side of a patch.
    pub patch: i64,
    /// The width of the tower.
    pub width: i64,
    /// The width of the hidden values of its blocks' MLPs.
    pub mlp: i64,
    /// Whether the projector has biases.
    pub bias: bool,
}

/// Reads the table of the whole network: its language part, and its eyes.
///
/// # Errors
/// Fails if a value is malformed, or asks for what bella does not compute.
pub fn read(values: &Values) -> Result<(Geometry, VisionConfig)> {
    let shown = values.path.display();
    let how = Format::of(values)?.map(|_| quantised::KEY);
    let known: Vec<&str> = KEYS.iter().chain(families::HARMLESS_ANYWHERE).copied().chain(how).collect();
    values.expect_keys("a network of model_type llava", &known)?;
    let table = |key: &str| -> Result<Values> {
        let found = values.get(key).filter(|table| table.is_object()).cloned();
        let found = found.with_context(|| format!("{shown}: has no table `{key}`, which describes a part of LLaVA"))?;
        Ok(Values::new(&values.path, found))
    };
    let (text, vision) = (table("text_config")?, table("vision_config")?);
    let family = decoder_of(&text, "llama", "text_config.model_type")?;
    ensure!(
        family.sees,
        "{shown}: text_config.model_type = \"{}\" is no language network that bella computes in LLaVA; known: {}",
        family.model_type,
        seeing().join(", ")
    );
    let mut geometry = Geometry::read(&text, family).context("text_config")?;
    // The whole config may say it in the place of the table.
    geometry.tied |= values.is_true("tie_word_embeddings");
    let eyes = eyes(values, &vision, &geometry)?;
    Ok((geometry, eyes))
}

/// Returns the model types of the language networks that LLaVA may have.
fn seeing() -> Vec<&'static str> {
    DECODERS.iter().filter(|family| family.sees).map(|family| family.model_type).collect()
}

fn eyes(values: &Values, vision: &Values, geometry: &Geometry) -> Result<VisionConfig> {
    let shown = values.path.display();
    let class = vision.text("model_type").unwrap_or("clip_vision_model");
    ensure!(
        class == "clip_vision_model",
        "{shown}: vision_config.model_type = \"{class}\" is no tower that bella computes in LLaVA; known: clip_vision_model"
    );
    let family = families::family(class).with_context(|| format!("{shown}: vision_config.model_type is unknown"))?;
    let tower = families::TowerConfig { family, values: vision, outer: Some(values) };
    tower.check_keys().context("vision_config")?;
    let activation = values.text("projector_hidden_act").unwrap_or("gelu");
    ensure!(
        activation == "gelu",
        "{shown}: projector_hidden_act = \"{activation}\" is none that bella computes; known: gelu"
    );
    let all = vision.integer("num_hidden_layers", families::BLOCKS)?;
    let width = vision.integer("hidden_size", family.width)?;
    let heads = vision.integer("num_attention_heads", family.heads)?;
    ensure!(heads_fit(heads, width), "{shown}: vision_config: {heads} heads do not divide the width {width}");
    let token = ["image_token_index", "image_token_id"].into_iter().find(|key| values.has(key));
    let token = values.integer(token.unwrap_or("image_token_index"), 32_000)?;
    ensure!(
        token < geometry.vocabulary,
        "{shown}: image_token_index = {token}: the vocabulary has {} tokens",
        geometry.vocabulary
    );
    Ok(VisionConfig {
        token,
        blocks: blocks(values, all)?,
        keeps_class: match values.text("vision_feature_select_strategy").unwrap_or("default") {
            "default" => false,
            "full" => true,
            word => bail!("{shown}: vision_feature_select_strategy = \"{word}\": must be \"default\" or \"full\""),
        },
        traits: Traits {
            heads,
            activation: vision.activation(family.activation)?,
            eps: vision.number("layer_norm_eps", family.eps)?,
        },
        image_size: vision.side("image_size", families::IMAGE_SIZE)?,
        patch: vision.side("patch_size", family.patch)?,
        width,
        mlp: (family.hidden)(&tower)?.1,
        bias: values.get("multimodal_projector_bias").and_then(Value::as_bool).unwrap_or(true),
    })
}

/// Returns the shape of the image tower that the table of the whole network describes, with one block more than are run, as a
/// [`VisionTower`](super::Llava::sight) counts them.
///
/// # Errors
/// Fails if a value is malformed, or if patches do not divide the image.
pub fn tower(values: &Values, eyes: &VisionConfig) -> Result<vit::Geometry> {
    let VisionConfig { patch, width, mlp, image_size, .. } = *eyes;
    ensure!(
        image_size % patch == 0,
        "{}: vision_config.patch_size = {patch}: must divide image_size = {image_size}",
        values.path.display()
    );
    let output = values.within("vision_config").integer("projection_dim", 512)?;
    Ok(vit::Geometry { width, blocks: eyes.blocks + 1, patch, grid: image_size / patch, mlp, output })
}

/// Returns the number of blocks whose output is `vision_feature_layer` among the embeddings and the outputs of all blocks.
fn blocks(values: &Values, all: i64) -> Result<usize> {
    let layer = values.get("vision_feature_layer").map_or(Some(-2), Value::as_i64);
    let place = layer.map(|layer| if layer < 0 { all + 1 + layer } else { layer });
    match place {
        Some(place) if (1..=all).contains(&place) => Ok(place as usize),
        _ => bail!(
            "{}: vision_feature_layer: must be the number of one of {all} blocks, such as -2 for the last but one",
            values.path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn with(change: impl Fn(&mut Value)) -> Result<VisionConfig> {
        let mut table = json!({
            "model_type": "llava",
            "text_config": { "model_type": "llama", "vocab_size": 32_064 },
            "vision_config": { "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336,
                "num_attention_heads": 16, "num_hidden_layers": 24 },
        });
        change(&mut table);
        read(&Values::new(Path::new("config.json"), table)).map(|(_, eyes)| eyes)
    }

    #[test]
    fn absent_keys_mean_llava_1_5() {
        let eyes = with(|_| ()).unwrap();
        assert_eq!((eyes.token, eyes.blocks, eyes.keeps_class, eyes.bias), (32_000, 23, false, true));
        assert_eq!((eyes.image_size, eyes.traits.heads), (336, 16));
        let last = with(|table| table["vision_feature_layer"] = json!(-1)).unwrap();
        assert_eq!(last.blocks, 24);
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let refused = |key: &str, value: Value| format!("{:#}", with(|table| table[key] = value.clone()).unwrap_err());
        for (key, value, rule) in [
            ("quantization_config", json!({ "bits": 4 }), "unquantised folder"),
            ("text_config", json!({ "model_type": "gemma" }), "text_config.model_type = \"gemma\""),
            (
                "text_config",
                json!({ "model_type": "gemma2" }),
                "no language network that bella computes in LLaVA; known: llama",
            ),
            ("vision_config", json!({ "model_type": "siglip_vision_model" }), "known: clip_vision_model"),
            ("vision_feature_layer", json!([-2, -5]), "must be the number of one of 24 blocks"),
            ("vision_feature_layer", json!(-25), "must be the number of one of 24 blocks"),
            ("projector_hidden_act", json!("relu"), "projector_hidden_act = \"relu\""),
            ("image_token_index", json!(32_064), "the vocabulary has 32064 tokens"),
            ("vision_config", json!(null), "has no table `vision_config`"),
            ("from_the_future", json!(3), "config.json: from_the_future = 3: a key that bella does not know"),
            ("is_encoder_decoder", json!(true), "is_encoder_decoder = true: a key that bella does not know"),
        ] {
            let error = refused(key, value);
            assert!(error.contains(rule), "{error}");
        }
    }
}
