//! The families of text encoders, one file for each: the model type, the names of layers, the sizes that absent keys mean, the
//! classes that load an export, and published networks (transformers 5.24).
//!
//! A new family needs its file, a `mod` line and its line in [`ENCODERS`].

mod albert;
mod bert;
mod deberta;
mod distilbert;
mod electra;
mod entry;
mod modernbert;
mod mpnet;
mod roberta;

use crate::model::families::class::Published;

pub use entry::{
    Distances, EMBEDDING_PROJ, Encoder, Features, Numbering, POOLER, POOLER_NORM, Places, RELATIVE, Shape, Sizes,
    Traits,
};

/// Every known family.
pub static ENCODERS: &[&Encoder] = &[
    &bert::BERT,
    &roberta::ROBERTA,
    &roberta::XLM_ROBERTA,
    &roberta::CAMEMBERT,
    &distilbert::DISTILBERT,
    &electra::ELECTRA,
    &albert::ALBERT,
    &mpnet::MPNET,
    &deberta::DEBERTA,
    &modernbert::MODERNBERT,
];

/// Returns the family of a model type.
pub fn encoder(model_type: &str) -> Option<&'static Encoder> {
    ENCODERS.iter().copied().find(|family| family.model_type == model_type)
}

/// Returns every published network.
pub(super) fn published() -> impl Iterator<Item = &'static Published> {
    ENCODERS.iter().flat_map(|family| family.published)
}

/// Returns the model types of all families.
pub fn model_types() -> Vec<&'static str> {
    ENCODERS.iter().map(|family| family.model_type).collect()
}
