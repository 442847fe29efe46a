//! ViT, DeiT and MAE.

use super::{Family, USUAL};
use crate::model::vit::required::{QkvBias, Required};

use super::Tower;

/// The keys that belong to the pooling behind the features, and to the decoder of pretraining.
const HARMLESS: &[&str] = &["encoder_stride", "pooler_act", "pooler_output_size"];

pub static VIT: Family = Family {
    model_type: "vit",
    classifies: true,
    prefixes: &["vit.", ""],
    keys: &["intermediate_size", "qkv_bias"],
    harmless: HARMLESS,
    required,
    ..USUAL
};

pub static DEIT: Family = Family {
    model_type: "deit",
    prefixes: &["deit.", ""],
    required: |tower| Ok(Required { distillation_token: true, ..required(tower)? }),
    ..VIT
};

pub static MAE: Family = Family {
    model_type: "vit_mae",
    classifies: false,
    prefixes: &["vit.", ""],
    harmless: &[
        "decoder_hidden_size",
        "decoder_intermediate_size",
        "decoder_num_attention_heads",
        "decoder_num_hidden_layers",
        "mask_ratio",
        "norm_pix_loss",
    ],
    ..VIT
};

fn required(tower: &Tower) -> anyhow::Result<Required> {
    let qkv_bias = if tower.flag("qkv_bias", true)? { QkvBias::All } else { QkvBias::None };
    Ok(Required { qkv_bias, ..tower.plain() })
}
