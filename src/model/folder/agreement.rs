//! Checks that a config does not contradict the weights.

use anyhow::{Result, ensure};

use super::config::{Config, Kind};
use super::timm;
use crate::model::recognition::Named;
use crate::model::recognition::identify::Fixed;

impl Config {
    /// Checks that the config does not contradict the weights. A network whose heads are in `fixed` may have
    /// other sizes than the architecture of timm that it follows.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights, or if the classifier reads something else than the features.
    pub fn check(&self, named: &Named, fixed: &Fixed) -> Result<()> {
        let (geometry, classes) = (&named.geometry, named.classes());
        match &self.kind {
            Kind::Transformers { family, .. } => {
                ensure!(
                    classes.is_none() || family.classifies,
                    "the classifier of a {} reads what bella does not compute: give the folder of the network without it, and \
                     use [head.linear]",
                    family.model_type
                );
                ensure!(
                    family.prefixes.contains(&named.prefix.as_str()),
                    "its parameters begin with `{}`, but those of model_type {} with {}: weights and config are not of one model",
                    named.prefix,
                    family.model_type,
                    family.prefixes.iter().map(|prefix| format!("`{prefix}`")).collect::<Vec<_>>().join(" or ")
                );
                self.tower().map_or(Ok(()), |tower| tower.check_sizes(geometry, named.registers(), classes))
            }
            Kind::Timm(arguments) if fixed.heads.is_none() => timm::check(arguments, &self.values, named),
            Kind::TimmInOpenClip { arguments, model } => {
                if fixed.heads.is_none() {
                    timm::check(arguments, &self.values, named)?;
                }
                model.check(geometry, true)
            }
            Kind::OpenClip(model) => model.check(geometry, false),
            Kind::Timm(_) | Kind::Told => Ok(()),
        }
    }
}
