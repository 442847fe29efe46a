//! This module reads what `config.json` says about the image of a network that sees; an absent key has the default of transformers 5.24.

use anyhow::{Context, Result, ensure};

use crate::model::families;
use crate::model::families::decoders::decoder_of;
use crate::model::families::sighted::{Reading, Sight, SightedFamily, model_types, sighted};
use crate::model::folder::quantised::{self, Format};
use crate::model::language::{Geometry, OutputMatrix};
use crate::model::values::{Values, is_set};
use crate::model::vit::parts::{Parts, Readout};
use crate::model::vit::required::Required;
use crate::model::vit::{self, Traits, heads_fit};

/// The keys beside the tables of parts, of every family: those that are read, and those that change nothing.
const KEYS: &[&str] = &[
    "architectures",
    "id2label",
    "ignore_index",
    "image_seq_length",
    "image_token_id",
    "image_token_index",
    "initializer_range",
    "model_type",
    "num_labels",
    "text_config",
    "tie_word_embeddings",
    "use_cache",
    "vision_config",
    "vocab_size",
];

/// The keys that change the logits of every family in a way that bella does not compute.
const REFUSED: &[&str] = &["is_encoder_decoder"];

/// The config of the way on which an image enters the language network.
#[derive(Clone)]
pub struct VisionConfig {
    /// The family of the whole network.
    pub family: &'static SightedFamily,
    /// The family of its image tower.
    pub tower: &'static families::Family,
    /// The parameters that the tower's config calls for.
    pub required: Required,
    /// The way from the tower to the language network.
    pub sight: Sight,
    /// The id of the token that stands for a patch.
    pub token: i64,
    /// The number of the tower's blocks, run or not.
    pub blocks: usize,
    pub traits: Traits,
    /// The number of pixels per side.
    pub image_size: i64,
    /// The number of pixels per side of a patch.
    pub patch: i64,
    /// The width of the tower.
    pub width: i64,
    /// The width of the hidden values of its blocks' MLPs.
    pub mlp: i64,
}

/// Returns the family of a config.
fn family_of(values: &Values) -> Result<&'static SightedFamily> {
    let model_type = values.text("model_type").unwrap_or_default();
    sighted(model_type).with_context(|| {
        format!(
            "{}: model_type = \"{model_type}\" is no network that sees images and that bella reads; known: {}",
            values.path.display(),
            model_types().join(", ")
        )
    })
}

/// Returns the keys of the whole config that are read of a family, and those that change nothing.
fn known_keys(family: &SightedFamily) -> Vec<&'static str> {
    [KEYS, families::HARMLESS_ANYWHERE, family.keys, family.harmless].concat()
}

/// Reads the table of the whole network: its language part, and its eyes.
///
/// # Errors
/// Fails if a value is malformed, or asks for what bella does not compute.
pub fn read(values: &Values) -> Result<(Geometry, VisionConfig)> {
    let shown = values.path.display();
    let family = family_of(values)?;
    let how = Format::of(values)?.map(|_| quantised::KEY);
    let what = format!("a network of model_type {}", family.model_type);
    values.refuse(REFUSED.iter(), is_set, family.model_type)?;
    values.expect_keys(&what, &known_keys(family).into_iter().chain(how).collect::<Vec<_>>())?;
    let table = |key: &str| -> Result<Values> {
        let found = values.get(key).filter(|table| table.is_object()).cloned();
        let found = found
            .with_context(|| format!("{shown}: has no table `{key}`, which describes a part of {}", family.about))?;
        Ok(Values::new(&values.path, found))
    };
    let text = table("text_config")?.without(family.harmless_in_text);
    let vision = table("vision_config")?.without(family.harmless_in_vision);
    let known = family.language_types();
    let language = decoder_of(&text, known[0], "text_config.model_type")?;
    ensure!(
        known.contains(&language.model_type),
        "{shown}: text_config.model_type = \"{}\" is no language network that bella computes in {}; known: {}",
        language.model_type,
        family.about,
        known.join(", ")
    );
    let mut geometry = Geometry::read(&text, language).context("text_config")?;
    let tied = values.flag("tie_word_embeddings", family.tied)?;
    let tied = tied || family.table_ties && geometry.output == OutputMatrix::Embeddings;
    geometry.output = if tied { OutputMatrix::Embeddings } else { OutputMatrix::Own };
    if family.reads_prompt_whole {
        // Within the smallest window every token sees its whole prompt.
        let windows = geometry.views.iter().filter_map(|view| view.window);
        geometry.context = windows.chain([geometry.context]).min().unwrap_or_default();
    }
    let eyes = eyes(values, family, &vision, &geometry)?;
    Ok((geometry, eyes))
}

fn eyes(values: &Values, family: &'static SightedFamily, vision: &Values, geometry: &Geometry) -> Result<VisionConfig> {
    let shown = values.path.display();
    let class = vision.text("model_type").unwrap_or(family.tower);
    ensure!(
        class == family.tower,
        "{shown}: vision_config.model_type = \"{class}\" is no tower that bella computes in {}; known: {}",
        family.about,
        family.tower
    );
    let tower = families::family(class).with_context(|| format!("{shown}: vision_config.model_type is unknown"))?;
    let config = families::TowerConfig { family: tower, values: vision, outer: Some(values) };
    config.check_keys().context("vision_config")?;
    let blocks = vision.integer("num_hidden_layers", families::BLOCKS)?;
    let width = vision.integer("hidden_size", tower.width)?;
    let heads = vision.integer("num_attention_heads", tower.heads)?;
    ensure!(heads_fit(heads, width), "{shown}: vision_config: {heads} heads do not divide the width {width}");
    // The newer key counts, as in transformers 5.
    let key = ["image_token_id", "image_token_index"].into_iter().find(|key| values.has(key));
    let key = key.unwrap_or("image_token_index");
    let token = values.integer(key, family.image_token)?;
    ensure!(token < geometry.vocabulary, "{shown}: {key} = {token}: the vocabulary has {} tokens", geometry.vocabulary);
    Ok(VisionConfig {
        family,
        tower,
        required: (tower.required)(&config)?,
        sight: (family.sight)(&Reading { values, blocks, width: geometry.width })?,
        token,
        blocks: blocks as usize,
        traits: Traits {
            heads,
            activation: vision.activation(tower.activation)?,
            eps: vision.number("layer_norm_eps", tower.eps)?,
        },
        image_size: vision.side("image_size", families::IMAGE_SIZE)?,
        patch: vision.side("patch_size", tower.patch)?,
        width,
        mlp: (tower.hidden)(&config)?.1,
    })
}

impl VisionConfig {
    /// Returns the shape of the image tower, of which only those blocks count that are run.
    ///
    /// # Errors
    /// Fails if patches do not divide the image. `shown` names the config.
    pub fn geometry(&self, shown: &str) -> Result<vit::Geometry> {
        let VisionConfig { patch, width, mlp, image_size, .. } = *self;
        ensure!(
            image_size % patch == 0,
            "{shown}: vision_config.patch_size = {patch}: must divide image_size = {image_size}"
        );
        let blocks = self.sight.blocks;
        Ok(vit::Geometry { width, blocks, patch, grid: image_size / patch, margin: 0, mlp, output: width })
    }

    /// Returns the parts of the image tower, of which the output of every token is read.
    pub fn parts(&self) -> Parts {
        let lead = i64::from(self.required.class_token);
        Parts { prefix: lead, positioned: lead, readout: Readout::NormedMean, ..Parts::PLAIN }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::model::families::sighted::SIGHTED;
    use crate::model::values::testing::{Keys, error, every_key_is_known};

    fn read_table(table: Value) -> Result<VisionConfig> {
        read(&Values::new(Path::new("config.json"), table)).map(|(_, eyes)| eyes)
    }

    fn with(change: impl Fn(&mut Value)) -> Result<VisionConfig> {
        let mut table = json!({
            "model_type": "llava",
            "text_config": { "model_type": "llama", "vocab_size": 32_064 },
            "vision_config": { "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336,
                "num_attention_heads": 16, "num_hidden_layers": 24 },
        });
        change(&mut table);
        read_table(table)
    }

    /// A config of the form of `google/paligemma2-3b-pt-224`.
    fn paligemma(change: impl Fn(&mut Value)) -> Result<(Geometry, VisionConfig)> {
        let mut table = json!({
            "model_type": "paligemma", "projection_dim": 2304, "hidden_size": 2304, "num_hidden_layers": 26,
            "_vocab_size": 257_152, "image_token_index": 257_152,
            "text_config": { "model_type": "gemma2", "vocab_size": 257_216, "num_image_tokens": 256, "hidden_act": "gelu_pytorch_tanh",
                "cache_implementation": "hybrid", "use_bidirectional_attention": true },
            "vision_config": { "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 14,
                "num_attention_heads": 16, "num_hidden_layers": 27, "num_image_tokens": 256, "num_positions": 256,
                "projection_dim": 2304, "projector_hidden_act": "gelu_fast", "vision_use_head": false },
        });
        change(&mut table);
        read(&Values::new(Path::new("config.json"), table))
    }

    #[test]
    fn absent_keys_mean_llava_1_5() {
        let eyes = with(|_| ()).unwrap();
        assert_eq!(eyes.sight, Sight { blocks: 23, keeps_class: false, norm: false, bias: true });
        assert_eq!((eyes.token, eyes.image_size, eyes.traits.heads), (32_000, 336, 16));
        let both = with(|table| (table["image_token_index"], table["image_token_id"]) = (json!(7), json!(9))).unwrap();
        assert_eq!(both.token, 9, "as `hf.LlavaConfig(image_token_index=7, image_token_id=9)` has it");
        let last = with(|table| table["vision_feature_layer"] = json!(-1)).unwrap();
        assert_eq!(last.sight.blocks, 24);
    }

    #[test]
    fn paligemma_sees_256_patches_by_the_whole_tower() {
        let (geometry, eyes) = paligemma(|_| ()).unwrap();
        assert_eq!(eyes.sight, Sight { blocks: 27, keeps_class: true, norm: true, bias: true });
        assert_eq!((eyes.geometry("").unwrap().grid, eyes.parts().prefix, eyes.token), (16, 0, 257_152));
        // `hf.PaliGemmaForConditionalGeneration` ties by the whole config alone, whatever Gemma's table says.
        for (whole, table) in [(true, false), (false, true)] {
            let said = paligemma(|config| {
                config["tie_word_embeddings"] = json!(whole);
                config["text_config"]["tie_word_embeddings"] = json!(table);
            });
            assert_eq!(said.unwrap().0.output == OutputMatrix::Embeddings, whole);
        }
        // Gemma 2 has windows of 4096 tokens and reads 8192.
        assert_eq!((geometry.output, geometry.context), (OutputMatrix::Embeddings, 4096));
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let refused =
            |key: &str, value: Value| format!("{:#}", with(|table| table[key] = value.clone()).err().unwrap());
        for (key, value, rule) in [
            ("quantization_config", json!({ "bits": 4 }), "unquantised folder"),
            ("text_config", json!({ "model_type": "falcon" }), "text_config.model_type = \"falcon\""),
            (
                "text_config",
                json!({ "model_type": "gemma2" }),
                "no language network that bella computes in LLaVA; known: llama, mistral, qwen2, qwen3",
            ),
            ("vision_config", json!({ "model_type": "siglip_vision_model" }), "known: clip_vision_model"),
            ("vision_feature_layer", json!([-2, -5]), "must be the number of one of 24 blocks"),
            ("vision_feature_layer", json!(-25), "must be the number of one of 24 blocks"),
            ("projector_hidden_act", json!("mish"), "projector_hidden_act = \"mish\""),
            ("image_token_index", json!(32_064), "the vocabulary has 32064 tokens"),
            ("vision_config", json!(null), "has no table `vision_config`"),
            ("from_the_future", json!(3), "config.json: from_the_future = 3: a key that bella does not know"),
            ("is_encoder_decoder", json!(true), "is_encoder_decoder = true: changes what"),
            ("model_type", json!("llava_next"), "known: llava, paligemma"),
        ] {
            let error = refused(key, value);
            assert!(error.contains(rule), "{error}");
        }
        let refused = |change: &dyn Fn(&mut Value)| format!("{:#}", paligemma(change).err().unwrap());
        for (table, key, value, rule) in [
            ("text_config", "model_type", json!("llama"), "computes in PaliGemma 1 and 2; known: gemma, gemma2"),
            ("text_config", "per_layer_config", json!({ "0": {} }), "per_layer_config"),
            ("vision_config", "model_type", json!("clip_vision_model"), "known: siglip_vision_model"),
            ("vision_config", "from_the_future", json!(3), "from_the_future = 3: a key that bella does not know"),
        ] {
            let error = refused(&|whole| whole[table][key] = value.clone());
            assert!(error.contains(rule), "{error}");
        }
        let narrow = refused(&|whole| whole["projection_dim"] = json!(2048));
        assert!(narrow.contains("projection_dim = 2048: must be text_config.hidden_size = 2304"), "{narrow}");
        let own = refused(&|whole| whole["vision_feature_layer"] = json!(-2));
        assert!(own.contains("vision_feature_layer = -2: a key that bella does not know"), "{own}");
    }

    /// The fields of the classes in transformers 5.24 (written by scripts/make_sighted_fixtures.py): each is read, changes nothing, or is
    /// refused where it is set.
    #[test]
    fn every_key_of_every_class_is_known() {
        let keys =
            |model_type: &str| Keys { known: known_keys(sighted(model_type).unwrap()), refused: REFUSED.to_vec() };
        let fields = include_str!("../../../tests/fixtures/sighted/keys.json");
        every_key_is_known((fields, SIGHTED.len()), &json!(true), keys, |of, mut table| {
            table["model_type"] = json!(of);
            error(read_table(table))
        });
    }
}
