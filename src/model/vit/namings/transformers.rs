//! The names in Hugging Face's vision models on disk: `vit.encoder.layer.0.attention.attention.query.weight`,
//! `vision_model.encoder.layers.0.self_attn.q_proj.weight`, `layer.0.mlp.up_proj.weight`.

use crate::model::vit::{Form, Naming};

pub static NAMING: Naming = Naming {
    key: "transformers",
    about: "Hugging Face folders: ViT, DeiT, MAE, BEiT, data2vec, DINOv2 (with registers), DINOv3, CLIP, SigLIP",
    landmarks: &[
        "embeddings.patch_embeddings.projection.weight",
        "embeddings.patch_embeddings.weight",
        "embeddings.patch_embedding.weight",
    ],
    prefixes: &[
        "vit.",
        "deit.",
        "beit.",
        "data2vec_vision.",
        "dinov2.",
        "dinov2_with_registers.",
        "dinov3_vit.",
        "vision_model.",
        "model.",
        "",
    ],
    canonical,
    beside,
    required: None,
};

/// The layers of a block in every family, with their canonical names.
const LAYERS: &[(&str, &str)] = &[
    ("layernorm_before.", "ln_1."),
    ("layernorm_after.", "ln_2."),
    ("layer_norm1.", "ln_1."),
    ("layer_norm2.", "ln_2."),
    ("norm1.", "ln_1."),
    ("norm2.", "ln_2."),
    ("attention.attention.query.", "attn.q."),
    ("attention.attention.key.", "attn.k."),
    ("attention.attention.value.", "attn.v."),
    ("attention.output.dense.", "attn.proj."),
    ("attention.q_proj.", "attn.q."),
    ("attention.k_proj.", "attn.k."),
    ("attention.v_proj.", "attn.v."),
    ("attention.o_proj.", "attn.proj."),
    ("self_attn.q_proj.", "attn.q."),
    ("self_attn.k_proj.", "attn.k."),
    ("self_attn.v_proj.", "attn.v."),
    ("self_attn.out_proj.", "attn.proj."),
    ("intermediate.dense.", "mlp.fc."),
    ("output.dense.", "mlp.proj."),
    ("mlp.fc1.", "mlp.fc."),
    ("mlp.fc2.", "mlp.proj."),
    ("mlp.up_proj.", "mlp.fc."),
    ("mlp.gate_proj.", "mlp.gate."),
    ("mlp.down_proj.", "mlp.proj."),
    ("mlp.weights_in.", "mlp.packed."),
    ("mlp.weights_out.", "mlp.proj."),
    ("attention.attention.relative_position_bias.relative_position_bias_table", "attn.relative.weight"),
    ("lambda_1", "ls_1.gamma"),
    ("lambda_2", "ls_2.gamma"),
    ("layer_scale1.lambda1", "ls_1.gamma"),
    ("layer_scale2.lambda1", "ls_2.gamma"),
];

/// The parameters outside the blocks.
const ROOT: &[(&str, &str, Form)] = &[
    ("embeddings.patch_embeddings.projection.weight", "patch.weight", Form::Flattened),
    ("embeddings.patch_embeddings.projection.bias", "patch.bias", Form::AsIs),
    ("embeddings.patch_embeddings.weight", "patch.weight", Form::Flattened),
    ("embeddings.patch_embeddings.bias", "patch.bias", Form::AsIs),
    ("embeddings.patch_embedding.weight", "patch.weight", Form::Flattened),
    ("embeddings.patch_embedding.bias", "patch.bias", Form::AsIs),
    ("embeddings.cls_token", "class_token", Form::Squeezed),
    ("embeddings.class_embedding", "class_token", Form::AsIs),
    ("embeddings.distillation_token", "distillation_token", Form::Squeezed),
    ("embeddings.register_tokens", "registers", Form::Rows),
    ("embeddings.position_embeddings", "position", Form::Squeezed),
    ("embeddings.position_embedding.weight", "position", Form::AsIs),
    ("encoder.relative_position_bias.relative_position_bias_table", "relative.weight", Form::AsIs),
    ("encoder.relative_position_bias.relative_position_index", "", Form::Ignored),
    ("embeddings.position_ids", "", Form::Ignored),
    ("embeddings.mask_token", "", Form::Ignored),
    ("pre_layrnorm.weight", "ln_pre.weight", Form::AsIs),
    ("pre_layrnorm.bias", "ln_pre.bias", Form::AsIs),
    ("head.probe", "pool.query", Form::Squeezed),
    ("head.attention.in_proj_weight", "pool.in_proj.weight", Form::AsIs),
    ("head.attention.in_proj_bias", "pool.in_proj.bias", Form::AsIs),
];

/// The layers outside the blocks that have a weight and a bias.
const PARTS: &[(&str, &str)] = &[
    ("layernorm.", "ln_post."),
    ("post_layernorm.", "ln_post."),
    ("norm.", "ln_post."),
    // BEiT's norm of the mean of the patches.
    ("pooler.layernorm.", "ln_mean."),
    ("head.attention.out_proj.", "pool.proj."),
    ("head.layernorm.", "pool.ln."),
    ("head.mlp.fc1.", "pool.fc."),
    ("head.mlp.fc2.", "pool.out."),
];

/// Returns the canonical name and layout of a parameter of the text tower of CLIP or SigLIP; `None` for any other.
pub fn text(name: &str) -> Option<(String, Form)> {
    let as_is = |name: &str| Some((name.to_string(), Form::AsIs));
    match name {
        "text_projection.weight" | "text_model.head.weight" => as_is("proj.weight"),
        "text_model.head.bias" => as_is("proj.bias"),
        "text_model.embeddings.token_embedding.weight" => as_is("token_embedding"),
        "text_model.embeddings.position_embedding.weight" => as_is("position"),
        "text_model.final_layer_norm.weight" => as_is("ln_final.weight"),
        "text_model.final_layer_norm.bias" => as_is("ln_final.bias"),
        _ => block(name.strip_prefix("text_model.")?),
    }
}

/// Returns the canonical name of a parameter of a block.
fn block(name: &str) -> Option<(String, Form)> {
    let stacks = ["encoder.layer.", "encoder.layers.", "layer.", "layers."];
    let (block, layer) = stacks.iter().find_map(|stack| name.strip_prefix(stack))?.split_once('.')?;
    if layer.ends_with("relative_position_index") {
        return Some((String::new(), Form::Ignored));
    }
    let (from, to) = LAYERS.iter().find(|(from, _)| layer.starts_with(from))?;
    Some((format!("blocks.{block}.{to}{}", &layer[from.len()..]), Form::AsIs))
}

fn canonical(name: &str) -> Option<(String, Form)> {
    if let Some(found) = block(name) {
        return Some(found);
    }
    if let Some((_, to, form)) = ROOT.iter().find(|(from, ..)| *from == name) {
        return Some((to.to_string(), *form));
    }
    if let Some((from, to)) = PARTS.iter().find(|(from, _)| name.starts_with(from)) {
        return Some((format!("{to}{}", &name[from.len()..]), Form::AsIs));
    }
    beside(name)
}

/// Returns the canonical name and layout of a parameter beside the blocks: a head, a projection, or a parameter that
/// images never go through.
fn beside(name: &str) -> Option<(String, Form)> {
    let ignored = ["pooler.", "text_model.", "text_projection.", "logit_scale", "logit_bias", "decoder."];
    match name {
        "visual_projection.weight" => Some(("proj.weight".into(), Form::AsIs)),
        "classifier.weight" | "cls_classifier.weight" => Some(("head.weight".into(), Form::AsIs)),
        "classifier.bias" | "cls_classifier.bias" => Some(("head.bias".into(), Form::AsIs)),
        "distillation_classifier.weight" => Some(("head_dist.weight".into(), Form::AsIs)),
        "distillation_classifier.bias" => Some(("head_dist.bias".into(), Form::AsIs)),
        _ => ignored.iter().any(|start| name.starts_with(start)).then(|| (String::new(), Form::Ignored)),
    }
}
