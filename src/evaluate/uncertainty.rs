//! Conformal sets on test images, whose thresholds come from other images. Their rows have a results file of their own.

use anyhow::Result;

use super::Evaluation;
use super::condition::Condition;
use crate::data::Fingerprint;
use crate::predictions::Predictions;
use crate::results::conformal_csv;
use crate::results::rebuild::set_aside;
use crate::results::store::{Row, replace_measurement};
use crate::results::uncertainty::SETS;
use crate::tasks::Outcome;

impl Evaluation<'_> {
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
        self.expect_unseen(images)?;
        self.measure(predictions, || {
            let mut who = self.who();
            who.push("set", &self.set);
            Condition::Foreign(foreign.to_string()).describe(&mut who);
            who.push("members", predictions.members().to_string());
            who.push("samples", predictions.samples().to_string());
            who.push("images", images.short());
            who.push("classes", predictions.classes().to_string());
            who
        })
    }

    /// Measures sets or intervals, if they are asked for. `who` returns the cells that say what they are of.
    ///
    /// # Errors
    /// Fails if the rows cannot be stored.
    pub(super) fn measure(&self, found: &dyn Outcome, who: impl Fn() -> Row) -> Result<()> {
        let Some(conformal) = self.conformal.as_ref().filter(|_| self.session.group.is_main()) else { return Ok(()) };
        let file = conformal_csv(self.run, &self.session.settings.out, &self.experiment.name);
        set_aside(&file)?;
        for rows in conformal.thresholds.measure(found, &who())? {
            replace_measurement(&file, &rows, &SETS)?;
            conformal.add(rows);
        }
        Ok(())
    }
}
