//! The families of decoders, one file for each: the model type and its class with the sizes that absent keys mean, the names of
//! layers, the parts that a config calls for, the keys that change nothing, the class that loads an export, and published
//! networks (transformers 5.24).
//!
//! A new family needs its file, a `mod` line and its line in [`DECODERS`].

mod decoder;
mod gemma;
mod gemma2;
mod gemma3;
mod gpt2;
mod layers;
mod llama;
mod mistral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod smollm3;
mod views;

use anyhow::{Context, Result, ensure};

use crate::model::families::class::Published;
use crate::model::values::Values;

pub use decoder::{Biases, Decoder, HeadNorms, Mlp, NormKind, NormPlaces, Positions, Traits};
pub(super) use gemma2::NAMES as GEMMA2_NAMES;
pub(super) use layers::{CLASS, OUTPUT_LAYER};
pub use views::{Seeing, View, check_types};

/// Every known family.
pub static DECODERS: &[&Decoder] = &[
    &llama::LLAMA,
    &mistral::MISTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &phi3::PHI3,
    &olmo2::OLMO2,
    &smollm3::SMOLLM3,
    &gpt2::GPT2,
];

/// The parts of the model types of mixtures of experts, which are not read.
const MIXTURES: [&str; 8] = ["mixtral", "moe", "deepseek", "dbrx", "gpt_oss", "llama4", "qwen3_next", "jamba"];

/// Returns the family of a model type.
pub fn decoder(model_type: &str) -> Option<&'static Decoder> {
    DECODERS.iter().copied().find(|family| family.model_type == model_type)
}

/// Returns the family of the table of a language network. `default` is the model type of a table that names none, and `key` leads to
/// the table's own.
///
/// # Errors
/// Fails if bella does not compute it.
pub fn decoder_of(values: &Values, default: &str, key: &str) -> Result<&'static Decoder> {
    let model_type = values.text("model_type").unwrap_or(default);
    let shown = values.path.display();
    check_dense(&shown.to_string(), key, model_type)?;
    decoder(model_type).with_context(|| {
        format!(
            "{shown}: {key} = \"{model_type}\" is no language network that bella reads; known: {}",
            model_types().join(", ")
        )
    })
}

/// Checks that the network of a model type is no mixture of experts. `shown` names the config, and `key` leads to the model type.
///
/// # Errors
/// Fails if it is one.
pub fn check_dense(shown: &str, key: &str, model_type: &str) -> Result<()> {
    ensure!(
        decoder(model_type).is_some() || !MIXTURES.iter().any(|part| model_type.contains(part)),
        "{shown}: {key} = \"{model_type}\" is a mixture of experts, of which each token goes through a few that a router chooses: bella \
         computes dense networks, in which every layer serves every token: give a dense network of the family; known: {}",
        model_types().join(", ")
    );
    Ok(())
}

/// Returns the model types of all families.
pub fn model_types() -> Vec<&'static str> {
    DECODERS.iter().map(|family| family.model_type).collect()
}

/// Returns every published decoder.
pub(super) fn published() -> impl Iterator<Item = &'static Published> {
    DECODERS.iter().flat_map(|family| family.published)
}
