//! The names in timm's `VisionTransformer`: `patch_embed.proj.weight`, `blocks.0.attn.qkv.weight`, `head.weight`.

use crate::model::vit::{Form, Naming, anything_beside};

pub static NAMING: Naming = Naming {
    key: "timm",
    about: "timm VisionTransformer with class token (DeiT, AugReg, …)",
    landmarks: &["patch_embed.proj.weight"],
    prefixes: &["", "visual.trunk.", "model."],
    canonical,
    beside: anything_beside,
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
            "attn.q_bias" | "attn.v_bias" => layer.replace("_", "."),
            "ls1.gamma" | "ls2.gamma" => layer.replace("ls", "ls_"),
            "gamma_1" | "gamma_2" => layer.replace("gamma", "ls") + ".gamma",
            "mlp.fc1_g.weight" | "mlp.fc1_g.bias" => layer.replace("fc1_g", "gate"),
            "mlp.fc1_x.weight" | "mlp.fc1_x.bias" => layer.replace("fc1_x", "fc"),
            _ => return None,
        };
        return Some((format!("blocks.{block}.{layer}"), Form::AsIs));
    }
    match name {
        "patch_embed.proj.weight" => Some(("patch.weight".into(), Form::Flattened)),
        "patch_embed.proj.bias" => as_is("patch.bias"),
        "cls_token" => Some(("class_token".into(), Form::Squeezed)),
        "dist_token" => Some(("distillation_token".into(), Form::Squeezed)),
        "reg_token" => Some(("registers".into(), Form::Rows)),
        "fc_norm.weight" | "fc_norm.bias" => as_is(&name.replace("fc_norm", "ln_mean")),
        "attn_pool.latent" => Some(("pool.query".into(), Form::Squeezed)),
        "head_dist.weight" | "head_dist.bias" => as_is(name),
        _ if name.starts_with("attn_pool.") => {
            let (_, layer) = name.split_once('.')?;
            let (layer, part) = layer.rsplit_once('.')?;
            let layer = match layer {
                "q" | "kv" | "proj" => layer,
                "norm" => "ln",
                "mlp.fc1" => "fc",
                "mlp.fc2" => "out",
                _ => return None,
            };
            as_is(&format!("pool.{layer}.{part}"))
        }
        "pos_embed" => Some(("position".into(), Form::Squeezed)),
        "norm_pre.weight" | "norm_pre.bias" => as_is(&name.replace("norm_pre", "ln_pre")),
        "norm.weight" | "norm.bias" => as_is(&name.replace("norm", "ln_post")),
        "head.weight" | "head.bias" => as_is(name),
        _ => None,
    }
}
