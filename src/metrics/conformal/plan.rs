//! The conformal sets that a command makes.

use anyhow::Result;

use super::{Alpha, Calibrated, Rule};
use crate::base::usage::Usage;
use crate::predictions::Predictions;

/// Kinds of sets, each at every level.
pub struct Plan {
    pub rules: Vec<Rule>,
    pub alphas: Vec<Alpha>,
}

impl Plan {
    /// Checks, before anything is predicted, that there are enough calibration images with these labels, `[N]`.
    ///
    /// # Errors
    /// Fails, as bad usage, with the number of images that the level needs.
    pub fn check(&self, labels: &[u32], class_names: &[String]) -> Result<()> {
        for (rule, alpha) in self.rules.iter().flat_map(|rule| self.alphas.iter().map(move |alpha| (rule, alpha))) {
            rule.check(*alpha, labels, class_names)
                .map_err(|error| Usage(format!("--{error}").replacen("--conformal level", "--conformal", 1)))?;
        }
        Ok(())
    }

    /// Takes the thresholds from predictions on calibration images.
    ///
    /// # Errors
    /// Fails if the predictions have no labels, if a logit is not finite, or if there are too few images.
    pub fn calibrate(&self, held_out: &Predictions) -> Result<Vec<Calibrated>> {
        Calibrated::all(&self.rules, &self.alphas, held_out)
    }
}
