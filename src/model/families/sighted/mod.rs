//! The families of language networks that see an image, one file for each: the decoders and the tower that they may have, the way
//! from one to the other, the form of prompts, the keys of configs, the classes that load an export, and published networks
//! (transformers 5.24).
//!
//! A new family needs its file, a `mod` line and its line in [`SIGHTED`].

mod entry;
mod llava;
mod paligemma;

use serde_json::Value;

use crate::model::families::class::{Class, Published};

pub use entry::{Asking, Reading, Sight, SightedFamily, Start};

/// Every known family.
pub static SIGHTED: &[&SightedFamily] = &[&llava::LLAVA, &paligemma::PALIGEMMA];

/// Returns the family of a model type.
pub fn sighted(model_type: &str) -> Option<&'static SightedFamily> {
    SIGHTED.iter().copied().find(|family| family.model_type == model_type)
}

/// Returns the model types of all families.
pub fn model_types() -> Vec<&'static str> {
    SIGHTED.iter().map(|family| family.model_type).collect()
}

/// Returns every published network.
pub(super) fn published() -> impl Iterator<Item = &'static Published> {
    SIGHTED.iter().flat_map(|family| family.published)
}

/// Returns the class that an exported network of a config is loaded in.
pub(super) fn class(config: &Value) -> Option<&'static Class> {
    let text = |config: &Value| config.get("model_type").and_then(Value::as_str).map(str::to_string);
    let family = sighted(&text(config)?)?;
    let language = config.get("text_config").and_then(text);
    family.class(language.as_deref())
}

impl SightedFamily {
    /// Returns the class of a network whose decoder is of a model type; the usual one if none is named.
    pub(super) fn class(&self, language: Option<&str>) -> Option<&'static Class> {
        let named = |(model_type, _): &&(&str, &Class)| language.is_none_or(|language| *model_type == language);
        self.languages.iter().find(named).map(|(_, class)| *class)
    }

    /// Returns the model types of the decoders that it may have.
    pub fn language_types(&self) -> Vec<&'static str> {
        self.languages.iter().map(|(model_type, _)| *model_type).collect()
    }
}
