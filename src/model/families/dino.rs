//! DINOv2, with and without registers, and DINOv3.

use crate::model::Normalize;
use anyhow::{Result, bail};

use super::class::{self, Class, classifying, reading};
use super::family::{Family, TowerConfig, USUAL};
use super::{tower_names::TowerNames, vit};
use crate::model::stored::Form;
use crate::model::values::widened;
use crate::model::vit::parts::Resize;
use crate::model::vit::required::{QkvBias, Required};

static V2_CLASS: Class =
    Class { asks_to_resize: false, ..classifying("Dinov2ForImageClassification", "dinov2.", 2, class::DINO) };
static V2_WITH_REGISTERS_CLASS: Class = Class {
    asks_to_resize: false,
    ..classifying("Dinov2WithRegistersForImageClassification", "dinov2_with_registers.", 2, class::DINO)
};
static V3_CLASS: Class =
    Class { prefix: ["", "model."], asks_to_resize: false, ..reading("DINOv3ViTModel", "pooler_output", class::DINO3) };

/// The norms and the scales of a block.
const BLOCK: &[(&str, &str)] = &[
    ("norm1.", "ln_1."),
    ("norm2.", "ln_2."),
    ("layer_scale1.lambda1", "ls_1.gamma"),
    ("layer_scale2.lambda1", "ls_2.gamma"),
];

pub static V2: Family = Family {
    model_type: "dinov2",
    name: "DINOv2",
    names: TowerNames { styles: class::DINO, block: BLOCK, ..vit::NAMES },
    class: Some(&V2_CLASS),
    processor: "Bit",
    normalize: Normalize::IMAGENET,
    eps: 1e-6,
    patch: 14,
    classifies: true,
    prefixes: &["dinov2.", ""],
    keys: &["mlp_ratio", "qkv_bias", "use_swiglu_ffn"],
    harmless: HARMLESS,
    required: second,
    hidden: |tower| {
        let ratio = tower.values.number("mlp_ratio", 4.0)?;
        let hidden = widened("mlp_ratio", tower.values.integer("hidden_size", tower.family.width)?, ratio)?;
        // The gated MLP has two thirds as many, rounded up to a multiple of 8.
        let gated = ((hidden as f64 * 2.0 / 3.0) as i64 + 7) / 8 * 8;
        Ok(("mlp_ratio", if tower.flag("use_swiglu_ffn", false)? { gated } else { hidden }))
    },
    ..USUAL
};

pub static V2_WITH_REGISTERS: Family = Family {
    model_type: "dinov2_with_registers",
    name: "DINOv2 with registers",
    names: TowerNames {
        styles: class::DINO,
        block: BLOCK,
        around: &[
            ("embeddings.cls_token", "class_token", Form::Squeezed),
            ("embeddings.register_tokens", "registers", Form::Rows),
            ("embeddings.position_embeddings", "position", Form::Squeezed),
            ("embeddings.mask_token", "", Form::Ignored),
            ("layernorm.", "ln_post.", Form::AsIs),
        ],
        ..vit::NAMES
    },
    class: Some(&V2_WITH_REGISTERS_CLASS),
    patch: 16,
    registers: Some(4),
    resize: Resize::Antialiased,
    prefixes: &["dinov2_with_registers.", ""],
    keys: &["mlp_ratio", "num_register_tokens", "qkv_bias", "use_swiglu_ffn"],
    // There is a tensor of them though their number be 0.
    required: |tower| Ok(Required { registers: true, ..second(tower)? }),
    ..V2
};

pub static V3: Family = Family {
    model_type: "dinov3_vit",
    name: "DINOv3",
    names: TowerNames {
        patches: "embeddings.patch_embeddings.weight",
        styles: class::DINO3,
        block: BLOCK,
        around: &[
            ("embeddings.cls_token", "class_token", Form::Squeezed),
            ("embeddings.register_tokens", "registers", Form::Rows),
            ("embeddings.mask_token", "", Form::Ignored),
            ("norm.", "ln_post.", Form::AsIs),
        ],
        beside: &[],
    },
    class: Some(&V3_CLASS),
    processor: "DINOv3ViT",
    normalize: Normalize::IMAGENET,
    heads: 6,
    eps: 1e-5,
    width: 384,
    mlp: 1536,
    registers: Some(0),
    rope_theta: Some(100.0),
    prefixes: &["", "model.", "dinov3_vit."],
    keys: &[
        "intermediate_size",
        "key_bias",
        "mlp_bias",
        "num_register_tokens",
        "proj_bias",
        "query_bias",
        "rope_theta",
        "use_gated_mlp",
        "value_bias",
    ],
    harmless: &[
        "apply_layernorm",
        "layerscale_value",
        "pos_embed_jitter",
        "pos_embed_rescale",
        "pos_embed_shift",
        "reshape_hidden_states",
    ],
    required: third,
    ..USUAL
};

/// The keys of the start of training, and of what backbones return.
const HARMLESS: &[&str] = &["apply_layernorm", "layerscale_value", "reshape_hidden_states", "use_mask_token"];

fn second(tower: &TowerConfig) -> Result<Required> {
    let qkv_bias = if tower.flag("qkv_bias", true)? { QkvBias::All } else { QkvBias::None };
    Ok(Required { layer_scale: true, qkv_bias, gated: tower.flag("use_swiglu_ffn", false)?, ..tower.plain() })
}

fn third(tower: &TowerConfig) -> Result<Required> {
    let [query, key, value] =
        [("query_bias", true), ("key_bias", false), ("value_bias", true)].map(|(key, usual)| tower.flag(key, usual));
    let qkv_bias = match (query?, key?, value?) {
        (true, true, true) => QkvBias::All,
        (true, false, true) => QkvBias::Keyless,
        (false, false, false) => QkvBias::None,
        (query, key, value) => bail!(
            "{}: query_bias = {query}, key_bias = {key}, value_bias = {value}: bella computes biases of all three, of queries \
             and values, or of none",
            tower.values.path.display()
        ),
    };
    for key in ["proj_bias", "mlp_bias"] {
        if !tower.flag(key, true)? {
            bail!("{}: {key} = false: bella computes these layers with a bias only", tower.values.path.display());
        }
    }
    Ok(Required {
        registers: true,
        position: false,
        layer_scale: true,
        qkv_bias,
        gated: tower.flag("use_gated_mlp", false)?,
        ..tower.plain()
    })
}
