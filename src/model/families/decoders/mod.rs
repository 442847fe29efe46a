//! The families of decoders, one file for each: the model type and its class with the sizes that absent keys mean, the names of
//! layers, the parts that a config calls for, the keys that change nothing, the class that loads an export, and published
//! networks (transformers 5.24).
//!
//! A new family needs its file, a `mod` line and its line in [`DECODERS`].

mod decoder;
mod llama;
mod llava;
mod mistral;
mod qwen2;
mod qwen3;

use std::path::Path;

use anyhow::{Context, Result};

use crate::model::families::class::{Class, Published};
use crate::model::values::Values;

pub use decoder::{Biases, Decoder, Sizes, Traits};
pub use llava::MODEL_TYPE as LLAVA;

/// Every known family.
pub static DECODERS: &[&Decoder] = &[&llama::LLAMA, &mistral::MISTRAL, &qwen2::QWEN2, &qwen3::QWEN3];

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
    decoder(model_type).with_context(|| {
        format!(
            "{}: {key} = \"{model_type}\" is no language network that bella reads; known: {}",
            values.path.display(),
            model_types().join(", ")
        )
    })
}

/// Returns the model types of all families.
pub fn model_types() -> Vec<&'static str> {
    DECODERS.iter().map(|family| family.model_type).collect()
}

/// Returns the class that an exported network of a model type is loaded in, also of one that sees images.
pub(super) fn class(model_type: &str) -> Option<&'static Class> {
    if model_type == LLAVA { Some(&llava::LLAVA) } else { decoder(model_type).map(|family| family.class) }
}

/// Returns the class of transformers that a publisher's config of a model type names.
pub fn architecture(model_type: &str) -> Option<&'static str> {
    if model_type == LLAVA { Some(llava::LLAVA.name) } else { decoder(model_type).map(|family| family.architecture) }
}

/// Returns every published network, those that see images first, since their names have parts of others.
pub fn published() -> impl Iterator<Item = &'static Published> {
    llava::PUBLISHED.iter().chain(DECODERS.iter().flat_map(|family| family.published))
}

impl Published {
    /// Returns the keys of all networks.
    pub fn keys() -> Vec<&'static str> {
        published().map(|published| published.key).collect()
    }

    /// Returns the network with this key.
    pub fn of_key(key: &str) -> Option<&'static Published> {
        published().find(|published| published.key == key)
    }

    /// Returns the network whose folder has such a name.
    pub fn of_path(path: &Path) -> Option<&'static Published> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        published().find(|published| published.files.iter().any(|part| name.contains(part)))
    }
}
