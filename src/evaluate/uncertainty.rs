//! Conformal sets on test images, whose thresholds come from other images. Their rows have a results file of their own.

use anyhow::{Result, ensure};

use super::{Condition, Evaluation};
use crate::data::Fingerprint;
use crate::metrics::conformal::Coverage;
use crate::predictions::Predictions;
use crate::results::conformal_csv;
use crate::results::rebuild::set_aside;
use crate::results::store::{Row, replace_measurement};
use crate::results::uncertainty::{SETS, rows};

impl Evaluation<'_> {
    /// Measures the sets of labelled predictions, if sets are asked for.
    ///
    /// # Errors
    /// Fails if the images are those of the calibration, or if the rows cannot be stored.
    pub(super) fn measure_sets(
        &self,
        predictions: &Predictions,
        images: Fingerprint,
        condition: &Condition,
    ) -> Result<()> {
        self.measure(predictions, images, || self.describe(predictions, condition, images))
    }

    /// Measures the sizes of the sets of images of other classes, if sets are asked for.
    ///
    /// # Errors
    /// Fails if the images are those of the calibration, or if the rows cannot be stored.
    pub(super) fn measure_foreign_sets(
        &self,
        predictions: &Predictions,
        foreign: &str,
        images: Fingerprint,
    ) -> Result<()> {
        self.measure(predictions, images, || {
            let mut who = self.who();
            who.push("set", &self.set);
            who.push("condition", format!("ood {foreign}"));
            who.push("members", predictions.members().to_string());
            who.push("samples", predictions.samples().to_string());
            who.push("images", images.short());
            who.push("classes", predictions.classes().to_string());
            who
        })
    }

    fn measure(&self, predictions: &Predictions, images: Fingerprint, who: impl Fn() -> Row) -> Result<()> {
        let Some(conformal) = self.conformal.as_ref().filter(|_| self.session.group.is_main()) else { return Ok(()) };
        ensure!(
            images != conformal.images,
            "{}: conformal sets were calibrated on these very images: name other test images",
            self.set
        );
        let file = conformal_csv(self.run, &self.session.settings.out, &self.experiment.name);
        set_aside(&file)?;
        let who = who();
        for (calibrated, coverage) in
            conformal.calibrated.iter().zip(Coverage::measure(&conformal.calibrated, predictions)?)
        {
            let rows = rows(&who, calibrated, &coverage);
            replace_measurement(&file, &rows, &SETS)?;
            conformal.add(rows);
        }
        Ok(())
    }
}
