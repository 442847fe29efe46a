//! The families of image towers of transformers, one file for those that are alike: the names of their parameters, the defaults of
//! their configs, the keys that are read and those that change nothing, the parts that a config calls for, the sizes that it states,
//! the image processor, the class that loads an export with the names of its layers, and published shapes (transformers 5.23). Those
//! of language networks are in [`decoders`], those of text encoders in [`encoders`].
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
mod siglip;
mod text;
mod tower_names;
mod vit;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::model::stored::StoredNames;
use crate::model::vit::architecture::Shape;

pub use class::{Class, Layers, Published, Style};
pub use family::{BLOCKS, Family, HARMLESS_ANYWHERE, IMAGE_SIZE, TowerConfig};
pub use names::{EMBEDDING, Names, OUTPUT};
pub use tower_names::TowerNames;

/// Every known family.
pub static FAMILIES: &[&Family] = &[
    &vit::VIT,
    &vit::DEIT,
    &vit::MAE,
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

/// Returns the family of a model type.
pub fn family(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|family| family.model_type == model_type)
}

/// Returns the family whose table lies in a config of a model type, beside that of a text tower.
pub fn within(outer: &str) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|family| family.outer == Some(outer))
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
            None => decoders::class(model_type),
        },
    };
    let Some(class) = found else {
        let images = FAMILIES.iter().filter(|family| family.class.is_some()).map(|family| family.model_type);
        let known: Vec<&str> =
            images.chain(decoders::model_types()).chain(encoders::model_types()).chain([decoders::LLAVA]).collect();
        bail!("a {model_type} of transformers cannot be exported: known are {}", known.join(", "));
    };
    Ok(class)
}
