//! The names in torchvision's `VisionTransformer`: `conv_proj.weight`, `encoder.layers.encoder_layer_0.mlp.0.weight`.

use crate::hub::CONFIG;
use crate::model::Normalize;
use crate::model::recognition::naming::{Naming, Package, Supposed, anything_beside};
use crate::model::stored::Form;
use crate::model::vit::required::Required;

pub static NAMING: Naming = Naming {
    key: "torchvision",
    about: || "torchvision VisionTransformer (vit_b_16, vit_b_32, vit_l_16, …)".into(),
    landmarks: || vec!["encoder.layers.encoder_layer_0.self_attention.in_proj_weight"],
    prefixes: || vec!["", "model."],
    canonical,
    beside: anything_beside,
    required: Some(Required::PLAIN),
    packages: &[Package::Torchvision],
    config: CONFIG,
    normalize: Supposed { value: Normalize::IMAGENET, why: "as torchvision's models" },
};

fn canonical(name: &str) -> Option<(String, Form)> {
    let as_is = |name: &str| Some((name.to_string(), Form::AsIs));
    if let Some(rest) = name.strip_prefix("encoder.layers.encoder_layer_") {
        let (block, layer) = rest.split_once('.')?;
        let layer = match layer {
            "ln_1.weight" | "ln_1.bias" | "ln_2.weight" | "ln_2.bias" => layer.to_string(),
            "self_attention.in_proj_weight" => "attn.qkv.weight".into(),
            "self_attention.in_proj_bias" => "attn.qkv.bias".into(),
            "self_attention.out_proj.weight" => "attn.proj.weight".into(),
            "self_attention.out_proj.bias" => "attn.proj.bias".into(),
            "mlp.0.weight" | "mlp.linear_1.weight" => "mlp.fc.weight".into(),
            "mlp.0.bias" | "mlp.linear_1.bias" => "mlp.fc.bias".into(),
            "mlp.3.weight" | "mlp.linear_2.weight" => "mlp.proj.weight".into(),
            "mlp.3.bias" | "mlp.linear_2.bias" => "mlp.proj.bias".into(),
            _ => return None,
        };
        return Some((format!("blocks.{block}.{layer}"), Form::AsIs));
    }
    match name {
        "conv_proj.weight" => Some(("patch.weight".into(), Form::Flattened)),
        "conv_proj.bias" => as_is("patch.bias"),
        "class_token" => Some(("class_token".into(), Form::Squeezed)),
        "encoder.pos_embedding" => Some(("position".into(), Form::Squeezed)),
        "encoder.ln.weight" => as_is("ln_post.weight"),
        "encoder.ln.bias" => as_is("ln_post.bias"),
        "heads.head.weight" => as_is("head.weight"),
        "heads.head.bias" => as_is("head.bias"),
        _ => None,
    }
}
