//! The names in Hugging Face's vision models on disk: `vit.encoder.layer.0.attention.attention.query.weight`,
//! `vision_model.encoder.layers.0.self_attn.q_proj.weight`, `layer.0.mlp.up_proj.weight`. Each family says its own.

use crate::base::small::push_new;
use crate::hub::CONFIG;
use crate::model::families::{FAMILIES, TowerNames};
use crate::model::recognition::naming::{Naming, Package, Supposed};
use crate::model::stored::Form;

pub static NAMING: Naming = Naming {
    key: "transformers",
    about: || {
        let families: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        format!("Hugging Face folders: {}", families.join(", "))
    },
    landmarks: || distinct(names().map(|names| names.patches)),
    prefixes: || {
        // The empty prefix is the last, since a network without one may lie within another network.
        let mut all = distinct(FAMILIES.iter().flat_map(|family| family.prefixes).copied());
        all.sort_by_key(|prefix| prefix.is_empty());
        all
    },
    canonical,
    // Some classes are saved without the prefix in front of their blocks.
    beside: |name| beside(name).or_else(|| block(name)),
    required: None,
    packages: &[Package::Transformers4, Package::Transformers5],
    config: CONFIG,
    normalize: Supposed::OF_TIMM,
};

/// Returns the names of every family.
fn names() -> impl Iterator<Item = &'static TowerNames> {
    FAMILIES.iter().map(|family| &family.names)
}

/// Returns each word once, in the order of their first places.
fn distinct(words: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut all = Vec::new();
    words.for_each(|word| push_new(&mut all, word));
    all
}

/// Returns the canonical name and layout of a parameter of the text tower of CLIP or SigLIP; `None` for any other.
pub fn text(name: &str) -> Option<(String, Form)> {
    let as_is = |name: &str| Some((name.to_string(), Form::AsIs));
    match name {
        "text_projection.weight" | "text_model.head.weight" => as_is("proj.weight"),
        "text_model.head.bias" => as_is("proj.bias"),
        "text_model.embeddings.token_embedding.weight" => as_is("token_embedding.weight"),
        "text_model.embeddings.position_embedding.weight" => as_is("position"),
        "text_model.final_layer_norm.weight" => as_is("ln_final.weight"),
        "text_model.final_layer_norm.bias" => as_is("ln_final.bias"),
        _ => block(name.strip_prefix("text_model.")?),
    }
}

/// Returns the canonical name of a parameter of a block.
fn block(name: &str) -> Option<(String, Form)> {
    let mut stacks = names().flat_map(|names| names.styles).map(|style| style.blocks);
    let (block, layer) = stacks.find_map(|stack| name.strip_prefix(stack))?.split_once('.')?;
    let found = names().find_map(|names| names.in_block(layer))?;
    Some(match found.is_empty() {
        true => (String::new(), Form::Ignored),
        false => (format!("blocks.{block}.{found}"), Form::AsIs),
    })
}

fn canonical(name: &str) -> Option<(String, Form)> {
    block(name).or_else(|| names().find_map(|names| names.around_blocks(name))).or_else(|| beside(name))
}

/// Returns the canonical name and layout of a parameter beside the blocks: a head, a projection, or a parameter that
/// images never go through.
fn beside(name: &str) -> Option<(String, Form)> {
    names().find_map(|names| names.beside_tower(name))
}
