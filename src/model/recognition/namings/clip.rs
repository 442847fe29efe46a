//! The names in OpenAI's CLIP archives and in open_clip: `visual.conv1.weight`,
//! `visual.transformer.resblocks.0.mlp.c_fc.weight`.

use crate::hub::OPEN_CLIP;
use crate::model::Normalize;
use crate::model::recognition::naming::{Naming, Package, Supposed, anything_beside};
use crate::model::stored::Form;

pub static NAMING: Naming = Naming {
    key: "clip",
    about: || "OpenAI and open_clip CLIP image towers (ViT-B/32, B/16, L/14, …), full model or `visual` alone".into(),
    // The text tower has blocks of the same names, but no class token.
    landmarks: || vec!["class_embedding"],
    prefixes: || vec!["visual.", ""],
    canonical,
    beside: anything_beside,
    required: None,
    packages: &[Package::OpenClip],
    config: OPEN_CLIP,
    normalize: Supposed { value: Normalize::CLIP, why: "as all models of CLIP" },
};

/// Returns the canonical name and layout of a parameter of the image tower. The text tower names its blocks alike.
pub fn canonical(name: &str) -> Option<(String, Form)> {
    let as_is = |name: &str| Some((name.to_string(), Form::AsIs));
    if let Some(rest) = name.strip_prefix("transformer.resblocks.") {
        let (block, layer) = rest.split_once('.')?;
        let layer = match layer {
            "ln_1.weight" | "ln_1.bias" | "ln_2.weight" | "ln_2.bias" => layer.to_string(),
            "attn.in_proj_weight" => "attn.qkv.weight".into(),
            "attn.in_proj_bias" => "attn.qkv.bias".into(),
            "attn.out_proj.weight" | "attn.out_proj.bias" => layer.replace("out_proj", "proj"),
            "mlp.c_fc.weight" | "mlp.c_fc.bias" => layer.replace("c_fc", "fc"),
            "mlp.c_proj.weight" | "mlp.c_proj.bias" => layer.replace("c_proj", "proj"),
            _ => return None,
        };
        return Some((format!("blocks.{block}.{layer}"), Form::AsIs));
    }
    match name {
        "conv1.weight" => Some(("patch.weight".into(), Form::Flattened)),
        "class_embedding" => as_is("class_token"),
        "positional_embedding" => as_is("position"),
        "ln_pre.weight" | "ln_pre.bias" | "ln_post.weight" | "ln_post.bias" => as_is(name),
        "proj" => Some(("proj.weight".into(), Form::Transposed)),
        _ => None,
    }
}
