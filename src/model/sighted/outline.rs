//! A network that sees images as its config describes it, with the names of its published folder, which transformers 4 wrote and 5
//! reads, too; the entry of its kind; and what a model takes over of one that has been opened.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Opened, Sighted, described, is_sighted, open, parameters, published_tower, settings, sizes};
use crate::data::Medium;
use crate::model::backbone::{self, Alike, Backbone, Held, Images, Opening, Parts, Setting, Words};
use crate::model::chat::Chat;
use crate::model::families::sighted::sighted;
use crate::model::kind::{Foreign, KindEntry, Making, Marks, Outline, Size, StandIn, TokenizerAt};
use crate::model::language::{published_sizes, write_made};
use crate::model::network::{Network, Parameters, Rows};
use crate::model::preparation::{Normalize, Preparation};
use crate::model::values::Values;

pub static KIND: KindEntry = KindEntry {
    word: "vision-language",
    open: opened,
    lies_at: is_sighted,
    reads: |model_type| sighted(model_type).is_some(),
    is_folder: true,
    outline: Ok(|values, tokens, normalize| Ok(Box::new(described(values, tokens, normalize)?))),
    stand_in: StandIn::Folder { marks: Marks::StartAndImage, write: write_stand_in },
    bench: &["checkpoint.kind=vision-language", "checkpoint.normalize=clip", "head.answers={}", "data.vqa-v2.root=vqa"],
    medium: |_| Medium::Questions,
    tokenizer: TokenizerAt::Folder,
    foreign: |_| Foreign {
        keys: &["image_size", "architecture", "heads", "activation", "eps"],
        why: "means nothing to a network of images and texts, whose config.json says it: leave it out",
    },
};

/// Opens the network of a config.
fn opened<'a>(opening: &Opening<'a>) -> Result<backbone::Opened<'a>> {
    let normalize = opening.normalize.context("checkpoint.normalize: must be set for a network that sees images")?;
    open(opening.path, opening.max_tokens, normalize, opening.quantize).map(backbone::Opened::alone)
}

/// A language network that sees an image, which bella runs itself.
impl Backbone for Opened {
    fn held(&self) -> Held<'_> {
        Held { network: &self.network, base: &self.base, names: Some(&self.names), head: None }
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn words(&self) -> Option<Words<'_>> {
        let logit_cap = self.network.language.geometry.traits.logit_cap;
        Some(Words { tokenizer: &self.tokenizer.tokenizer, base: &self.base, logit_cap })
    }

    fn read(&mut self, rows: Rows) {
        self.network.reads = rows;
    }

    fn settings(&self) -> Vec<Setting> {
        settings(&self.network.language.geometry, &self.network.sight.eyes, self.network.language.tokens)
    }

    fn read_like(&self, path: &Path) -> Result<Alike> {
        parameters(path, self.network.language.tokens)
    }

    fn announce(&self) -> Option<f64> {
        let (language, sight) = (&self.network.language, &self.network.sight);
        tracing::info!(
            "checkpoint: {} on {} ({}), {} parameters, width {}, {} blocks; an image of {} px a side is {} of at most {} tokens",
            sight.eyes.family.model_type,
            language.geometry.family.model_type,
            language.geometry.family.about,
            self.base.count(),
            language.geometry.width,
            language.geometry.blocks,
            sight.eyes.image_size,
            sight.patches(),
            language.tokens
        );
        None
    }

    fn into_parts(self: Box<Self>, _: &Images) -> Result<Parts> {
        Ok(Parts { network: Box::new(self.network), base: self.base, preparation: Box::new(self.tokenizer) })
    }
}

/// Writes the sizes of a stand-in into a publisher's config, with how the image enters.
fn write_stand_in(config: &mut Value, making: &Making) -> Result<()> {
    let values = Values::new(Path::new("config.json"), config.clone());
    let Sighted { language, sight, .. } = described(&values, None, Normalize::CLIP)?;
    write_made(&mut config["text_config"], &language.geometry, making)?;
    let vision = &mut config["vision_config"];
    if making.size != Size::Published {
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
    vision["model_type"] = json!(sight.eyes.family.tower);
    let image_size = vision["image_size"].as_i64().unwrap_or(sight.eyes.image_size);
    let side = image_size / vision["patch_size"].as_i64().unwrap_or(1).max(1);
    config["image_seq_length"] = json!(side * side);
    config["image_token_index"] = json!(making.image);
    if config.get("projection_dim").is_some() {
        config["projection_dim"] = config["text_config"][language.geometry.family.spelling.width].clone();
    }
    Ok(())
}

/// The start of the names of the image tower.
const EYES: &str = "vision_tower.vision_model.";

/// Returns the tensors of the projector, from patches to embeddings.
fn projector(network: &Sighted) -> Vec<(String, Vec<i64>)> {
    let layers = network.sight.eyes.family.projector;
    let own = |name: &str| layers.iter().any(|layer| name.starts_with(layer));
    let all = sizes(network).into_iter().filter(|(name, _)| own(name));
    all.map(|(name, shape)| (format!("multi_modal_{name}"), shape)).collect()
}

impl Outline for Sighted {
    fn sizes(&self) -> Vec<(String, Vec<i64>)> {
        sizes(self)
    }

    fn published_sizes(&self) -> Vec<(String, Vec<i64>)> {
        let seen = published_tower(&self.sight.eyes).into_iter();
        let mut all: Vec<_> = seen.map(|(name, shape)| (format!("{EYES}{name}"), shape)).collect();
        all.extend(projector(self));
        all.extend(published_sizes(&self.language.geometry, "language_model.model."));
        all
    }

    fn tie(&self) -> Option<[String; 2]> {
        self.language.tie()
    }

    fn most_tokens(&self) -> i64 {
        self.language.tokens
    }

    fn image_side(&self) -> Option<i64> {
        Some(self.sight.eyes.image_size)
    }

    fn patches(&self) -> Option<i64> {
        Some(self.sight.patches())
    }

    fn tokenizer(&self, folder: &Path, _: Option<&Chat>) -> Result<Box<dyn Preparation>> {
        Ok(Box::new(self.questions(folder)?))
    }

    fn reading(mut self: Box<Self>, rows: Rows) -> Box<dyn Network> {
        self.reads = rows;
        self
    }
}
