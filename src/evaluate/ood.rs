//! Out-of-distribution detection: how well uncertainty separates images of foreign classes from those of the test set.

use anyhow::Result;

use super::Evaluation;
use crate::data::Fingerprint;
use crate::data::batches::TestImages;
use crate::metrics::ood::compare;
use crate::metrics::scores::Uncertainty;
use crate::results::images::{FOREIGN, TESTED};
use crate::results::ood::describe;
use crate::results::ood_csv;
use crate::results::rebuild::set_aside;
use crate::results::store::{Identity, Row, upsert_measurement};
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
