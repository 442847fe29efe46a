//! SigLIP, and SigLIP 2 of fixed image sizes.

use anyhow::ensure;

use super::class::{self, Class, reading};
use super::family::{Family, USUAL};
use super::tower_names::{TOWER, TowerNames};
use crate::model::stored::Form;
use crate::model::vit::required::Required;
use crate::model::vit::text::TextStyle;

static CLASS: Class =
    Class { prefix: ["vision_model.", ""], ..reading("SiglipVisionModel", "pooler_output", class::TOWER) };

pub static SIGLIP: Family = Family {
    model_type: "siglip_vision_model",
    name: "SigLIP",
    names: TowerNames {
        around: &[
            ("embeddings.position_embedding.weight", "position", Form::AsIs),
            ("embeddings.position_ids", "", Form::Ignored),
            ("post_layernorm.", "ln_post.", Form::AsIs),
            ("head.probe", "pool.query", Form::Squeezed),
            ("head.attention.in_proj_weight", "pool.in_proj.weight", Form::AsIs),
            ("head.attention.in_proj_bias", "pool.in_proj.bias", Form::AsIs),
            ("head.attention.out_proj.", "pool.proj.", Form::AsIs),
            ("head.layernorm.", "pool.ln.", Form::AsIs),
            ("head.mlp.fc1.", "pool.fc.", Form::AsIs),
            ("head.mlp.fc2.", "pool.out.", Form::AsIs),
        ],
        beside: &[("text_model.", ""), ("logit_scale", ""), ("logit_bias", "")],
        ..TOWER
    },
    strangers: &[(
        "siglip2",
        "is SigLIP 2 for images of any shape (NaFlex), whose patches and positions bella does not compute: give a SigLIP 2 of one \
         image size, whose model_type is siglip",
    )],
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
