//! Checks that a config does not contradict the weights.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::classes::IMAGE_SIZE;
use super::config::{Config, FILES, Kind};
use crate::model::vit::Geometry;
use crate::model::vit::parts::Parts;

impl Config {
    /// Checks that the config does not contradict the weights.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights, or if the classifier reads something else than the features.
    pub fn check(&self, geometry: &Geometry, parts: &Parts, classifies: bool) -> Result<()> {
        let Kind::Transformers(class) = self.kind else { return self.check_size(geometry) };
        ensure!(
            !classifies || class.classifies,
            "the classifier of a {} reads what bella does not compute: give the folder of the network without it, and use \
             [head.linear]",
            class.model_type
        );
        let shown = FILES[0];
        let values = &self.values;
        let said = |key: &str| values.get(key).and_then(Value::as_i64);
        let image_size = values.get("image_size").map(|_| values.side("image_size", IMAGE_SIZE)).transpose()?;
        for (key, said, found) in [
            ("hidden_size", said("hidden_size"), geometry.width),
            ("num_hidden_layers", said("num_hidden_layers"), geometry.blocks as i64),
            ("patch_size", Some(values.side("patch_size", class.patch)?), geometry.patch),
            ("image_size", image_size, geometry.image_size()),
        ] {
            ensure!(
                said.is_none_or(|said| said == found),
                "{shown} says {key} = {}, but the weights have {found}: they are not of one model",
                said.unwrap_or_default()
            );
        }
        let registers = said("num_register_tokens").unwrap_or(parts.prefix - 1);
        ensure!(
            registers == parts.prefix - 1 || class.model_type == "deit",
            "{shown} says num_register_tokens = {registers}, but the weights have {}",
            parts.prefix - 1
        );
        Ok(())
    }

    /// Checks that the image size of open_clip's own towers is that of the weights.
    fn check_size(&self, geometry: &Geometry) -> Result<()> {
        let said = if matches!(self.kind, Kind::OpenClip) { self.image_size()? } else { None };
        ensure!(
            said.is_none_or(|said| said == geometry.image_size()),
            "{} says image_size = {}, but the weights have {}: they are not of one model",
            FILES[1],
            said.unwrap_or_default(),
            geometry.image_size()
        );
        Ok(())
    }
}
