//! ViT, DeiT, MAE and MSN.

use super::class::{self, Class, classifying};
use super::family::{Family, TowerConfig, USUAL};
use super::tower_names::TowerNames;
use crate::model::Normalize;
use crate::model::stored::Form;
use crate::model::vit::required::{QkvBias, Required};

/// The keys that belong to the pooling behind the features, and to the decoder of pretraining.
const HARMLESS: &[&str] = &["encoder_stride", "pooler_act", "pooler_output_size"];

static VIT_CLASS: Class = classifying("ViTForImageClassification", "vit.", 1, class::VIT);
static MSN_CLASS: Class = classifying("ViTMSNForImageClassification", "vit.", 1, class::VIT);
static DEIT_CLASS: Class = classifying("DeiTForImageClassification", "deit.", 1, class::VIT);

/// The names that ViT, DeiT, MAE and BEiT share.
pub(super) const NAMES: TowerNames = TowerNames {
    patches: "embeddings.patch_embeddings.projection.weight",
    styles: class::VIT,
    block: &[("layernorm_before.", "ln_1."), ("layernorm_after.", "ln_2.")],
    around: &[
        ("embeddings.cls_token", "class_token", Form::Squeezed),
        ("embeddings.position_embeddings", "position", Form::Squeezed),
        ("embeddings.mask_token", "", Form::Ignored),
        ("layernorm.", "ln_post.", Form::AsIs),
    ],
    beside: &[("classifier.weight", "head.weight"), ("classifier.bias", "head.bias"), ("pooler.", "")],
};

pub static VIT: Family = Family {
    model_type: "vit",
    name: "ViT",
    names: NAMES,
    class: Some(&VIT_CLASS),
    processor: "ViT",
    classifies: true,
    prefixes: &["vit.", ""],
    keys: &["intermediate_size", "qkv_bias"],
    harmless: HARMLESS,
    required,
    ..USUAL
};

pub static DEIT: Family = Family {
    model_type: "deit",
    name: "DeiT",
    names: TowerNames {
        around: &[
            ("embeddings.cls_token", "class_token", Form::Squeezed),
            ("embeddings.distillation_token", "distillation_token", Form::Squeezed),
            ("embeddings.position_embeddings", "position", Form::Squeezed),
            ("embeddings.mask_token", "", Form::Ignored),
            ("layernorm.", "ln_post.", Form::AsIs),
        ],
        beside: &[
            ("cls_classifier.weight", "head.weight"),
            ("cls_classifier.bias", "head.bias"),
            ("distillation_classifier.weight", "head_dist.weight"),
            ("distillation_classifier.bias", "head_dist.bias"),
        ],
        ..NAMES
    },
    class: Some(&DEIT_CLASS),
    processor: "DeiT",
    normalize: Normalize::IMAGENET,
    prefixes: &["deit.", ""],
    required: |tower| Ok(Required { distillation_token: true, ..required(tower)? }),
    ..VIT
};

pub static MAE: Family = Family {
    model_type: "vit_mae",
    name: "MAE",
    names: TowerNames { beside: &[("decoder.", "")], ..NAMES },
    class: None,
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
    normalize: Normalize::IMAGENET,
    ..VIT
};

/// MSN's classifier is saved by transformers 5.24 with the prefix before all names but those of blocks, and read so.
pub static MSN: Family = Family {
    model_type: "vit_msn",
    name: "MSN",
    class: Some(&MSN_CLASS),
    eps: 1e-6,
    normalize: Normalize::IMAGENET,
    ..VIT
};

fn required(tower: &TowerConfig) -> anyhow::Result<Required> {
    let qkv_bias = if tower.flag("qkv_bias", true)? { QkvBias::All } else { QkvBias::None };
    Ok(Required { qkv_bias, ..tower.plain() })
}
