//! The names in timm's `VisionTransformer`: `patch_embed.proj.weight`, `blocks.0.attn.qkv.weight`, `head.weight`.

use crate::hub::CONFIG;
use crate::model::recognition::naming::{Naming, Package, Supposed};
use crate::model::stored::Form;

pub static NAMING: Naming = Naming {
    key: "timm",
    about: || {
        "timm VisionTransformer, Beit and Eva (DeiT, AugReg, BEiT, EVA-02, DINOv3, …), also within open_clip".into()
    },
    landmarks: || vec!["patch_embed.proj.weight"],
    prefixes: || vec!["", "visual.trunk.", "model."],
    canonical,
    beside,
    required: None,
    packages: &[Package::Timm],
    config: CONFIG,
    normalize: Supposed::OF_TIMM,
};

/// Returns the canonical name and layout of a parameter beside the tower, where open_clip has a projection.
fn beside(name: &str) -> Option<(String, Form)> {
    match name.strip_prefix("visual.") {
        Some("head.proj.weight") => Some(("proj.weight".into(), Form::AsIs)),
        Some("head.proj.bias") => Some(("proj.bias".into(), Form::AsIs)),
        Some(_) => None,
        None => Some((String::new(), Form::Ignored)),
    }
}

/// Layers in the files of DINOv2, DINOv3 and EVA-02 as their authors publish them, where they differ from timm's.
const NATIVE: [(&str, &str); 6] = [
    ("mlp.w12.", "mlp.packed."),
    ("mlp.w1.", "mlp.gate."),
    ("mlp.w2.", "mlp.fc."),
    ("mlp.w3.", "mlp.proj."),
    ("mlp.ffn_ln.", "mlp.norm."),
    ("attn.inner_attn_ln.", "attn.norm."),
];

fn canonical(name: &str) -> Option<(String, Form)> {
    let as_is = |name: &str| Some((name.to_string(), Form::AsIs));
    if let Some(rest) = name.strip_prefix("blocks.") {
        let (block, layer) = rest.split_once('.')?;
        return match layer {
            "attn.relative_position_index" | "attn.rope.freqs_cos" | "attn.rope.freqs_sin" => {
                Some((String::new(), Form::Ignored))
            }
            _ => as_is(&format!("blocks.{block}.{}", in_block(layer)?)),
        };
    }
    match name {
        "patch_embed.proj.weight" => Some(("patch.weight".into(), Form::Flattened)),
        "patch_embed.proj.bias" => as_is("patch.bias"),
        "cls_token" => Some(("class_token".into(), Form::Squeezed)),
        "dist_token" => Some(("distillation_token".into(), Form::Squeezed)),
        "reg_token" | "register_tokens" | "storage_tokens" => Some(("registers".into(), Form::Rows)),
        "fc_norm.weight" | "fc_norm.bias" => as_is(&name.replace("fc_norm", "ln_mean")),
        "attn_pool.latent" => Some(("pool.query".into(), Form::Squeezed)),
        "head_dist.weight" | "head_dist.bias" => as_is(name),
        _ if name.starts_with("attn_pool.") => as_is(&in_pool(name.strip_prefix("attn_pool.")?)?),
        "rel_pos_bias.relative_position_bias_table" => as_is("relative.weight"),
        // A buffer that is computed anew, and a norm of DINOv3's training.
        "rope_embed.periods" | "local_cls_norm.weight" | "local_cls_norm.bias" => Some((String::new(), Form::Ignored)),
        _ if name.starts_with("rope.") && name != "rope.freqs" => Some((String::new(), Form::Ignored)),
        // MAE's decoder, which only pretraining uses.
        _ if name.starts_with("decoder_") => Some((String::new(), Form::Ignored)),
        "mask_token" | "rel_pos_bias.relative_position_index" => Some((String::new(), Form::Ignored)),
        "pos_embed" => Some(("position".into(), Form::Squeezed)),
        "norm_pre.weight" | "norm_pre.bias" => as_is(&name.replace("norm_pre", "ln_pre")),
        "norm.weight" | "norm.bias" => as_is(&name.replace("norm", "ln_post")),
        "head.weight" | "head.bias" => as_is(name),
        _ => None,
    }
}

/// Returns the canonical name of a parameter within a block.
fn in_block(layer: &str) -> Option<String> {
    Some(match layer {
        "norm1.weight" | "norm1.bias" => layer.replace("norm1", "ln_1"),
        "norm2.weight" | "norm2.bias" => layer.replace("norm2", "ln_2"),
        "attn.qkv.weight" | "attn.qkv.bias" | "attn.proj.weight" | "attn.proj.bias" => layer.to_string(),
        "mlp.fc1.weight" | "mlp.fc1.bias" => layer.replace("fc1", "fc"),
        "mlp.fc2.weight" | "mlp.fc2.bias" => layer.replace("fc2", "proj"),
        "attn.q_bias" | "attn.v_bias" => layer.replace("_", "."),
        "attn.q_proj.weight" | "attn.q_proj.bias" => layer.replace("q_proj", "q"),
        "attn.k_proj.weight" | "attn.k_proj.bias" => layer.replace("k_proj", "k"),
        "attn.v_proj.weight" | "attn.v_proj.bias" => layer.replace("v_proj", "v"),
        // DINOv3's authors store which biases are 0: those of the keys.
        "attn.qkv.bias_mask" => layer.to_string(),
        _ if NATIVE.iter().any(|(from, _)| layer.starts_with(from)) => {
            let (from, to) = NATIVE.iter().find(|(from, _)| layer.starts_with(from))?;
            layer.replacen(from, to, 1)
        }
        "attn.norm.weight" | "attn.norm.bias" | "mlp.norm.weight" | "mlp.norm.bias" => layer.to_string(),
        "attn.relative_position_bias_table" => "attn.relative.weight".to_string(),
        "ls1.gamma" | "ls2.gamma" => layer.replace("ls", "ls_"),
        "gamma_1" | "gamma_2" => layer.replace("gamma", "ls") + ".gamma",
        "mlp.fc1_g.weight" | "mlp.fc1_g.bias" => layer.replace("fc1_g", "gate"),
        "mlp.fc1_x.weight" | "mlp.fc1_x.bias" => layer.replace("fc1_x", "fc"),
        _ => return None,
    })
}

/// Returns the canonical name of a parameter of SigLIP's attention pool.
fn in_pool(parameter: &str) -> Option<String> {
    let (layer, part) = parameter.rsplit_once('.')?;
    let layer = match layer {
        "q" | "kv" | "proj" => layer,
        "norm" => "ln",
        "mlp.fc1" => "fc",
        "mlp.fc2" => "out",
        _ => return None,
    };
    Some(format!("pool.{layer}.{part}"))
}
