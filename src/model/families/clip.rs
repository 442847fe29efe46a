//! CLIP.

use crate::model::Normalize;
use crate::model::families::class::{self, Class, reading};
use crate::model::families::family::{Family, USUAL};
use crate::model::families::tower_names::{TOWER, TowerNames};
use crate::model::stored::Form;
use crate::model::vit::architecture::Shape;
use crate::model::vit::required::{Projection, Required};
use crate::model::vit::text::TextStyle;
use crate::model::vit::{Activation, Geometry, Traits};

static CLASS: Class = Class {
    prefix: ["vision_model.", "vision_model."],
    ..reading("CLIPVisionModelWithProjection", "image_embeds", class::TOWER)
};
static UNPROJECTED: Class =
    Class { prefix: ["vision_model.", ""], ..reading("CLIPVisionModel", "pooler_output", class::TOWER) };

pub static CLIP: Family = Family {
    model_type: "clip_vision_model",
    name: "CLIP",
    names: TowerNames {
        around: &[
            ("embeddings.class_embedding", "class_token", Form::AsIs),
            ("embeddings.position_embedding.weight", "position", Form::AsIs),
            ("embeddings.position_ids", "", Form::Ignored),
            ("pre_layrnorm.", "ln_pre.", Form::AsIs),
            ("post_layernorm.", "ln_post.", Form::AsIs),
        ],
        beside: &[
            ("visual_projection.weight", "proj.weight"),
            ("text_model.", ""),
            ("text_projection.", ""),
            ("logit_scale", ""),
        ],
        ..TOWER
    },
    shapes: SHAPES,
    outer: Some("clip"),
    text: Some(TextStyle::Clip),
    class: Some(&CLASS),
    without_projection: Some(&UNPROJECTED),
    processor: "CLIP",
    normalize: Normalize::CLIP,
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

/// The published towers.
static SHAPES: &[Shape] = &[
    Shape {
        key: "vit-b-32",
        about: "CLIP ViT-B/32, 224 px",
        geometry: Geometry { width: 768, blocks: 12, patch: 32, grid: 7, margin: 0, mlp: 3072, output: 512 },
        traits: Traits { heads: 12, activation: Activation::QuickGelu, eps: 1e-5 },
    },
    Shape {
        key: "vit-b-16",
        about: "CLIP ViT-B/16, 224 px",
        geometry: Geometry { width: 768, blocks: 12, patch: 16, grid: 14, margin: 0, mlp: 3072, output: 512 },
        traits: Traits { heads: 12, activation: Activation::QuickGelu, eps: 1e-5 },
    },
    Shape {
        key: "vit-l-14",
        about: "CLIP ViT-L/14, 224 px",
        geometry: Geometry { width: 1024, blocks: 24, patch: 14, grid: 16, margin: 0, mlp: 4096, output: 768 },
        traits: Traits { heads: 16, activation: Activation::QuickGelu, eps: 1e-5 },
    },
    Shape {
        key: "clip-mini",
        about: "a small CLIP tower for 32 px: patch 8, width 192, 6 blocks",
        geometry: Geometry { width: 192, blocks: 6, patch: 8, grid: 4, margin: 0, mlp: 768, output: 512 },
        traits: Traits { heads: 3, activation: Activation::Gelu, eps: 1e-5 },
    },
];

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;
    use crate::data::fields::{Fields, PIXELS};
    use crate::model::network::{Network, Weights};

    /// Checks that the image tower of OpenAI's ViT-B/32 has 87,849,216 parameters.
    #[test]
    fn published_sizes() {
        let count = |shape: &Shape| shape.random(1).1.count();
        assert_eq!(count(&SHAPES[0]), 87_849_216);
        let mini = SHAPES.iter().find(|shape| shape.key == "clip-mini").unwrap();
        assert_eq!(count(mini), 2_808_576);
    }

    #[test]
    fn a_random_tower_computes_features() {
        let mini = SHAPES.iter().find(|shape| shape.key == "clip-mini").unwrap();
        let (vit, base) = mini.random(1);
        let images = Fields::of(PIXELS, Tensor::randn([1, 2, 3, 32, 32], (Kind::Float, Device::Cpu)));
        let features = vit.forward(&Weights::frozen(&base), &images);
        assert_eq!(features.size(), [1, 2, 512]);
        assert!(bool::try_from(features.isfinite().all()).unwrap());
        // A different seed gives different weights.
        assert!(!features.equal(&vit.forward(&Weights::frozen(&mini.random(2).1), &images)));
    }
}
