//! A LLaVA network as its config describes it, with the names of its published folder, which transformers 4 wrote and 5 reads, too;
//! and the entry of its kind.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Llava, PROJECTOR, QuestionTokenizer, described, is_llava, sizes};
use crate::data::Medium;
use crate::model::chat::Chat;
use crate::model::families::decoders::LLAVA;
use crate::model::kind::{Foreign, KindEntry, Making, Marks, Outline, Size, StandIn, TokenizerAt};
use crate::model::language::{Tokenizer, published_sizes, write_made};
use crate::model::network::{Network, Rows};
use crate::model::preparation::{Normalize, Preparation};
use crate::model::values::Values;
use crate::model::vit;

pub static KIND: KindEntry = KindEntry {
    word: "vision-language",
    lies_at: is_llava,
    reads: |model_type| model_type == LLAVA,
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

/// Writes the sizes of a stand-in into a publisher's config, with how the image enters.
fn write_stand_in(config: &mut Value, making: &Making) -> Result<()> {
    let values = Values::new(Path::new("config.json"), config.clone());
    let geometry = described(&values, None, Normalize::CLIP)?.language.geometry;
    write_made(&mut config["text_config"], &geometry, making)?;
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
    vision["model_type"] = json!("clip_vision_model");
    let side = vision["image_size"].as_i64().unwrap_or(0) / vision["patch_size"].as_i64().unwrap_or(1).max(1);
    config["image_seq_length"] = json!(side * side);
    config["image_token_index"] = json!(making.image);
    config["vision_feature_layer"] = json!(-2);
    config["vision_feature_select_strategy"] = json!("default");
    Ok(())
}

/// The start of the names of the image tower.
const EYES: &str = "vision_tower.vision_model.";

/// Returns the tensors of the projector, from patches to embeddings.
fn projector(network: &Llava) -> Vec<(String, Vec<i64>)> {
    let own = |name: &str| PROJECTOR.iter().any(|layer| name.starts_with(layer));
    let all = sizes(network).into_iter().filter(|(name, _)| own(name));
    all.map(|(name, shape)| (format!("multi_modal_{name}"), shape)).collect()
}

/// Returns the tensors of CLIP's whole image tower, also of the block that is not run and of the norm after it, but not its
/// projection.
fn seen(geometry: &vit::Geometry) -> Vec<(String, Vec<i64>)> {
    let vit::Geometry { width, blocks, patch, grid, mlp, .. } = *geometry;
    let mut all = vec![
        ("embeddings.class_embedding".to_string(), vec![width]),
        ("embeddings.patch_embedding.weight".to_string(), vec![width, 3, patch, patch]),
        ("embeddings.position_embedding.weight".to_string(), vec![1 + grid * grid, width]),
    ];
    let mut layer = |name: String, shape: &[i64]| {
        all.push((format!("{name}.weight"), shape.to_vec()));
        all.push((format!("{name}.bias"), vec![shape[0]]));
    };
    layer("pre_layrnorm".into(), &[width]);
    for block in 0..blocks {
        let name = |layer: &str| format!("encoder.layers.{block}.{layer}");
        layer(name("layer_norm1"), &[width]);
        for attended in ["q_proj", "k_proj", "v_proj", "out_proj"] {
            layer(name(&format!("self_attn.{attended}")), &[width, width]);
        }
        layer(name("layer_norm2"), &[width]);
        layer(name("mlp.fc1"), &[mlp, width]);
        layer(name("mlp.fc2"), &[width, mlp]);
    }
    layer("post_layernorm".into(), &[width]);
    all.into_iter().map(|(name, shape)| (format!("{EYES}{name}"), shape)).collect()
}

impl Outline for Llava {
    fn sizes(&self) -> Vec<(String, Vec<i64>)> {
        sizes(self)
    }

    fn published_sizes(&self) -> Vec<(String, Vec<i64>)> {
        let mut all = seen(&self.sight.tower.geometry);
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
        let sight = &self.sight;
        let Llava { language, .. } = self;
        Ok(Box::new(QuestionTokenizer {
            tokenizer: Tokenizer::open(folder, language.geometry.vocabulary, language.tokens as usize)?,
            image: sight.eyes.token as u32,
            patches: sight.patches() as usize,
            image_side: sight.eyes.image_size,
            normalize: sight.normalize,
        }))
    }

    fn reading(mut self: Box<Self>, rows: Rows) -> Box<dyn Network> {
        self.reads = rows;
        self
    }
}
