//! CLIP.

use super::class::{self, Class, reading};
use super::family::{Family, USUAL};
use crate::model::vit::required::{Projection, Required};
use crate::model::vit::text::TextStyle;

static CLASS: Class = Class {
    prefix: ["vision_model.", "vision_model."],
    ..reading("CLIPVisionModelWithProjection", "image_embeds", class::TOWER)
};
static UNPROJECTED: Class =
    Class { prefix: ["vision_model.", ""], ..reading("CLIPVisionModel", "pooler_output", class::TOWER) };

pub static CLIP: Family = Family {
    model_type: "clip_vision_model",
    outer: Some("clip"),
    text: Some(TextStyle::Clip),
    class: Some(&CLASS),
    without_projection: Some(&UNPROJECTED),
    processor: "CLIP",
    activation: "quick_gelu",
    eps: 1e-5,
    patch: 32,
    prefixes: &["vision_model.", ""],
    keys: &["intermediate_size", "projection_dim"],
    harmless: &["vocab_size"],
    required: |tower| {
        let saved = |end: &str| tower.architectures().any(|class| class.ends_with(end));
        let projection = match tower.outer {
            Some(_) => Projection::Plain,
            None if saved("WithProjection") => Projection::Plain,
            None if saved("CLIPVisionModel") => Projection::None,
            None => Projection::Untold,
        };
        Ok(Required { projection, heads: tower.heads(), ..Required::CLIP })
    },
    ..USUAL
};
