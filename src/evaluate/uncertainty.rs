//! Out-of-distribution detection (how well uncertainty separates images of foreign classes from those of the test set), and
//! conformal sets on test images, whose thresholds come from other images. Each has a results file of its own.

use anyhow::{Result, ensure};

use super::{Condition, Evaluation};
use crate::data::Fingerprint;
use crate::data::batches::TestImages;
use crate::metrics::Uncertainty;
use crate::metrics::conformal::Coverage;
use crate::metrics::ood::compare;
use crate::predictions::Predictions;
use crate::results::images::{FOREIGN, TESTED};
use crate::results::rebuild::set_aside;
use crate::results::store::{Identity, Row, replace_measurement, upsert_measurement};
use crate::results::uncertainty::{SETS, describe, rows};
use crate::results::{conformal_csv, ood_csv};
use crate::tasks::About;

/// The cells that identify a row of an out-of-distribution file.
const OOD_ROW: Identity = Identity {
    keys: &["run", "set", "ood_set", "predictive", "score", "average"],
    images: &[TESTED, FOREIGN],
    keeps: None,
};

/// The uncertainty on the test set that foreign images are compared with.
pub struct Inside {
    pub uncertainty: Uncertainty,
    /// The fingerprint of the test set's images.
    pub images: Fingerprint,
}

impl Evaluation<'_> {
    /// Predicts the foreign `images` with the same members; stores and returns one row per score and average.
    pub fn out_of_distribution(&self, inside: &Inside, ood_set: &str, images: &TestImages) -> Result<Vec<Row>> {
        let (inside, tested) = (&inside.uncertainty, inside.images);
        let About { classes, metadata } = self.about(&format!("ood {ood_set}"), images.fingerprint);
        let outside = self.predictor.predictions(self.logits(&images.set)?, None)?;
        let outside = outside.with_class_names(classes)?.with_metadata(metadata)?;
        self.save(&outside)?;
        self.measure_foreign_sets(&outside, ood_set, images.fingerprint)?;
        let measured = compare(inside, &Uncertainty::compute(&outside)?);
        let file = ood_csv(self.run, &self.session.settings.out, &self.experiment.name);
        set_aside(&file)?;
        let mut rows = Vec::new();
        for one in measured? {
            let mut row = self.who();
            row.push("set", &self.set);
            row.push("ood_set", ood_set);
            row.push("members", inside.shape.members.to_string());
            row.push("samples", inside.shape.samples.to_string());
            row.push("images", tested.short());
            row.push("ood_samples", outside.samples().to_string());
            row.push("ood_images", images.fingerprint.short());
            describe(&one, &mut row);
            if self.session.group.is_main() {
                upsert_measurement(&file, &row, &OOD_ROW)?;
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

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
