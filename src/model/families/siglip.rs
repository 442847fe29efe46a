//! SigLIP, and SigLIP 2 of fixed image sizes.

use anyhow::ensure;

use super::class::{self, Class, reading};
use super::family::{Family, USUAL};
use crate::model::vit::required::Required;
use crate::model::vit::text::TextStyle;

static CLASS: Class =
    Class { prefix: ["vision_model.", ""], ..reading("SiglipVisionModel", "pooler_output", class::TOWER) };

pub static SIGLIP: Family = Family {
    model_type: "siglip_vision_model",
    outer: Some("siglip"),
    text: Some(TextStyle::Siglip),
    class: Some(&CLASS),
    processor: "Siglip",
    activation: "gelu_pytorch_tanh",
    eps: 1e-6,
    prefixes: &["vision_model.", ""],
    keys: &["intermediate_size", "vision_use_head"],
    required: |tower| {
        ensure!(
            tower.flag("vision_use_head", true)?,
            "{}: vision_use_head = false: bella computes SigLIP's tower with the attention that reads its tokens",
            tower.values.path.display()
        );
        Ok(Required { class_token: false, pool: true, ..tower.plain() })
    },
    ..USUAL
};
