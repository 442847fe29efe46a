//! The families of image towers of transformers, one file for those that are alike: the names of their parameters, the defaults of
//! their configs, the keys that are read and those that change nothing, the parts that a config calls for, the sizes that it states,
//! the image processor, the class that loads an export with the names of its layers, and published shapes (transformers 5.23). Those
//! of language networks are in [`decoders`], those of language networks that see images in [`sighted`], those of text encoders in
//! [`encoders`].
//!
//! A new family needs its file, a `mod` line and its line in [`FAMILIES`].

mod beit;
mod class;
mod clip;
pub mod decoders;
mod dino;
pub mod encoders;
mod family;
mod names;
pub mod sighted;
mod siglip;
mod text;
mod tower_names;
mod vit;

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::model::stored::StoredNames;
use crate::model::vit::architecture::Shape;

pub use class::{Class, LastToken, Layers, Outer, Published, Style};
pub use family::{BLOCKS, Family, HARMLESS_ANYWHERE, IMAGE_SIZE, REFUSED_OF_TEXTS, TowerConfig};
pub use names::{EMBEDDING, HEAD, Names, OUTPUT};
pub use tower_names::TowerNames;

/// Every known family.
pub static FAMILIES: &[&Family] = &[
    &vit::VIT,
    &vit::DEIT,
    &vit::MAE,
    &vit::MSN,
    &beit::BEIT,
    &beit::DATA2VEC,
    &dino::V2,
    &dino::V2_WITH_REGISTERS,
    &dino::V3,
    &clip::CLIP,
    &siglip::SIGLIP,
];

/// Returns the published shapes of all families.
pub fn shapes() -> impl Iterator<Item = &'static Shape> {
    FAMILIES.iter().flat_map(|family| family.shapes)
}

/// Returns every published network of texts.
pub fn published() -> impl Iterator<Item = &'static Published> {
    writers().chain(encoders::published())
}

/// Returns every published network that writes texts: those that see images first, since their names have parts of others.
pub fn writers() -> impl Iterator<Item = &'static Published> {
    sighted::published().chain(decoders::published())
}

/// Returns the class of transformers that a publisher's config of a network of texts names.
pub fn architecture(model_type: &str) -> Option<&'static str> {
    let sighted = sighted::sighted(model_type).and_then(|family| family.class(None)).map(|class| class.name);
    let decoder = || decoders::decoder(model_type).map(|family| family.architecture);
    sighted.or_else(decoder).or_else(|| encoders::encoder(model_type).map(|family| family.class.name))
}

/// Returns the class by which transformers reads the tokenizer of a network of texts where its folder names none.
pub fn tokenizer_class(model_type: &str) -> Option<&'static str> {
    let encoder = encoders::encoder(model_type).map(|family| family.tokenizer);
    encoder.or_else(|| decoders::decoder(model_type).map(|family| family.tokenizer)).flatten()
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

    /// Returns the network whose folder has such a name. The names of decoders may have more in front; those of encoders may not, since
    /// `distilroberta-base` is another network than `roberta-base`.
    pub fn of_path(path: &Path) -> Option<&'static Published> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let is_named = |published: &&Published| published.files.iter().any(|part| name.contains(part));
        let begins = |published: &&Published| published.files.iter().any(|part| name.starts_with(part));
        writers().find(is_named).or_else(|| encoders::published().find(begins))
    }
}

/// Returns the family of a model type.
pub fn family(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|family| family.model_type == model_type)
}

/// Returns the family whose table lies in a config of a model type, beside that of a text tower.
pub fn within(outer: &str) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|family| family.outer == Some(outer))
}

/// Returns the model types of networks of texts, also of those that see images.
pub fn types_of_texts() -> Vec<&'static str> {
    [decoders::model_types(), encoders::model_types(), sighted::model_types()].concat()
}

/// Returns the model types of all networks, those of images first.
pub fn model_types() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.model_type).chain(types_of_texts()).collect()
}

/// Returns the class of a decoder that classifies the last token of a text, of a publisher's config; `None` for another network.
pub fn classifying(config: &Value) -> Option<&'static Class> {
    let model_type = config.get("model_type").and_then(Value::as_str)?;
    decoders::decoder(model_type).map(|family| &family.classes.classifying)
}

/// Returns the class that an export of a folder of transformers is loaded in.
///
/// # Errors
/// Fails if no class of transformers computes what bella does.
pub fn class(config: &Value, names: &StoredNames) -> Result<&'static Class> {
    let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let found = match within(model_type).or(family(model_type)) {
        Some(family) if names.name_of("proj.weight").is_none() => family.without_projection.or(family.class),
        Some(family) => family.class,
        None => match encoders::encoder(model_type) {
            Some(family) => Some(family.class(names)),
            None => sighted::class(config)
                .or_else(|| decoders::decoder(model_type).map(|family| family.class(config, names))),
        },
    };
    let Some(class) = found else {
        let mut known = model_types();
        known.retain(|known| family(known).is_none_or(|family| family.class.is_some()));
        bail!("a {model_type} of transformers can neither be exported nor imported: known are {}", known.join(", "));
    };
    Ok(class)
}
