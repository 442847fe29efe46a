//! Checks that a config does not contradict the weights.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::classes::IMAGE_SIZE;
use super::config::{Config, FILES, Kind};
use crate::model::vit::Geometry;
use crate::model::vit::architecture::of_sizes;
use crate::model::vit::identify::Fixed;
use crate::model::vit::parts::Parts;

impl Config {
    /// Checks that the config does not contradict the weights. A network whose heads are in `fixed` may have
    /// other sizes than the architecture of timm that it follows.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights, or if the classifier reads something else than the features.
    pub fn check(&self, geometry: &Geometry, parts: &Parts, classifies: bool, fixed: &Fixed) -> Result<()> {
        let Kind::Transformers(class) = self.kind else {
            if fixed.heads.is_none() {
                self.check_architecture(geometry)?;
            }
            return self.check_open_clip(geometry);
        };
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

    /// Checks that the weights have the sizes of timm's architecture, or those that the config gives in their place.
    fn check_architecture(&self, geometry: &Geometry) -> Result<()> {
        let Kind::Timm(architecture) = self.kind else { return Ok(()) };
        let own = |key: &str| self.values.get("model_args").and_then(|arguments| arguments.get(key)?.as_i64());
        for (what, key, usual, found) in [
            ("width", "embed_dim", architecture.width, geometry.width),
            ("blocks", "depth", architecture.blocks, geometry.blocks as i64),
            ("patch", "patch_size", architecture.patch, geometry.patch),
        ] {
            let said = own(key).unwrap_or(usual);
            let fitting = of_sizes(geometry.width, geometry.blocks as i64, geometry.patch).next();
            let instead = fitting.map_or(String::new(), |known| format!(", such as {}", known.name));
            ensure!(
                said == found,
                "{what} {said} belongs to the architecture {}, but the weights have {found}: set checkpoint.architecture to \
                 that of the weights{instead}, or checkpoint.heads if the network is your own",
                architecture.name
            );
        }
        Ok(())
    }

    /// Checks that open_clip's own tower has the image size of the weights and reads its class token.
    fn check_open_clip(&self, geometry: &Geometry) -> Result<()> {
        let own = matches!(self.kind, Kind::OpenClip);
        let pool = self.values.text("pool_type").unwrap_or("tok");
        ensure!(
            !own || pool == "tok",
            "{} says pool_type = \"{pool}\", which bella does not compute for open_clip's own towers: it knows \"tok\"",
            FILES[1]
        );
        let said = if own { self.image_size()? } else { None };
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
