//! The names in timm's `VisionTransformer`: `patch_embed.proj.weight`, `blocks.0.attn.qkv.weight`, `head.weight`.

use crate::model::vit::{Form, Naming};

pub static NAMING: Naming = Naming {
    key: "timm",
    about: "timm VisionTransformer with class token (DeiT, AugReg, …)",
    landmark: "patch_embed.proj.weight",
    prefixes: &["", "visual.trunk.", "model."],
    canonical,
};

fn canonical(name: &str) -> Option<(String, Form)> {
    let as_is = |name: &str| Some((name.to_string(), Form::AsIs));
    if let Some(rest) = name.strip_prefix("blocks.") {
        let (block, layer) = rest.split_once('.')?;
        let layer = match layer {
            "norm1.weight" | "norm1.bias" => layer.replace("norm1", "ln_1"),
            "norm2.weight" | "norm2.bias" => layer.replace("norm2", "ln_2"),
            "attn.qkv.weight" | "attn.qkv.bias" | "attn.proj.weight" | "attn.proj.bias" => layer.to_string(),
            "mlp.fc1.weight" | "mlp.fc1.bias" => layer.replace("fc1", "fc"),
            "mlp.fc2.weight" | "mlp.fc2.bias" => layer.replace("fc2", "proj"),
            _ => return None,
        };
        return Some((format!("blocks.{block}.{layer}"), Form::AsIs));
    }
    match name {
        "patch_embed.proj.weight" => Some(("patch.weight".into(), Form::Flattened)),
        "patch_embed.proj.bias" => as_is("patch.bias"),
        "cls_token" => Some(("class_token".into(), Form::Squeezed)),
        "pos_embed" => Some(("position".into(), Form::Squeezed)),
        "norm_pre.weight" | "norm_pre.bias" => as_is(&name.replace("norm_pre", "ln_pre")),
        "norm.weight" | "norm.bias" => as_is(&name.replace("norm", "ln_post")),
        "head.weight" | "head.bias" => as_is(name),
        _ => None,
    }
}
