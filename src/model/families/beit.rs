//! BEiT and data2vec, whose attention knows relative positions.

use anyhow::Result;

use super::family::{Family, TowerConfig, USUAL};
use super::{tower_names::TowerNames, vit};
use crate::model::stored::Form;
use crate::model::vit::required::{QkvBias, Required};

pub static BEIT: Family = Family {
    model_type: "beit",
    name: "BEiT",
    names: TowerNames {
        block: &[
            ("layernorm_before.", "ln_1."),
            ("layernorm_after.", "ln_2."),
            ("attention.attention.relative_position_bias.relative_position_bias_table", "attn.relative.weight"),
            ("attention.attention.relative_position_bias.relative_position_index", ""),
            ("lambda_1", "ls_1.gamma"),
            ("lambda_2", "ls_2.gamma"),
        ],
        around: &[
            ("embeddings.cls_token", "class_token", Form::Squeezed),
            ("embeddings.position_embeddings", "position", Form::Squeezed),
            ("embeddings.mask_token", "", Form::Ignored),
            ("encoder.relative_position_bias.relative_position_bias_table", "relative.weight", Form::AsIs),
            ("encoder.relative_position_bias.relative_position_index", "", Form::Ignored),
            ("layernorm.", "ln_post.", Form::AsIs),
            // The norm of the mean of the patches.
            ("pooler.layernorm.", "ln_mean.", Form::AsIs),
        ],
        ..vit::NAMES
    },
    processor: "Beit",
    classifies: true,
    prefixes: &["beit.", ""],
    keys: &[
        "intermediate_size",
        "layer_scale_init_value",
        "use_absolute_position_embeddings",
        "use_mean_pooling",
        "use_relative_position_bias",
        "use_shared_relative_position_bias",
    ],
    // Those of pretraining and of segmentation.
    harmless: &[
        "add_fpn",
        "auxiliary_channels",
        "auxiliary_concat_input",
        "auxiliary_loss_weight",
        "auxiliary_num_convs",
        "pool_scales",
        "reshape_hidden_states",
        "segmentation_indices",
        "semantic_loss_ignore_index",
        "use_auxiliary_head",
        "use_mask_token",
        "vocab_size",
    ],
    required,
    ..USUAL
};

pub static DATA2VEC: Family =
    Family { model_type: "data2vec-vision", name: "data2vec", prefixes: &["data2vec_vision.", ""], ..BEIT };

fn required(tower: &TowerConfig) -> Result<Required> {
    let scale = tower.values.get("layer_scale_init_value").and_then(|value| value.as_f64()).unwrap_or(0.1);
    Ok(Required {
        position: tower.flag("use_absolute_position_embeddings", false)?,
        relative: tower.flag("use_relative_position_bias", false)?,
        shared_relative: tower.flag("use_shared_relative_position_bias", false)?,
        layer_scale: scale > 0.0,
        qkv_bias: QkvBias::Keyless,
        mean_norm: tower.flag("use_mean_pooling", true)?,
        ..tower.plain()
    })
}
