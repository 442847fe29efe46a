//! How well uncertainty tells the images of foreign classes from those of the test set.

use anyhow::Result;

use super::{Evaluation, ood_csv};
use crate::images::ImageSet;
use crate::metrics::ood::compare;
use crate::metrics::uncertainty::Uncertainty;
use crate::predictions::Predictions;
use crate::results::ood::describe;
use crate::results::store::{Row, upsert_row};

/// Cells that say which row of an out-of-distribution file is which.
const OOD_KEYS: &[&str] = &["run", "set", "ood_set", "predictive", "score", "average"];

impl Evaluation<'_> {
    /// Predicts the foreign `images` with the same members, and stores and returns a row a score and average.
    pub fn out_of_distribution(&self, inside: &Uncertainty, ood_set: &str, images: &ImageSet) -> Result<Vec<Row>> {
        let outside = Predictions::unlabelled(self.shape(images.samples()), self.logits(images)?)?;
        let outside = self.named(outside, &format!("ood {ood_set}"))?;
        outside.save(&self.run.predictions(&self.set, &format!("ood-{ood_set}"), &self.predictive))?;
        let measured = compare(inside, &Uncertainty::compute(&outside)?);
        let file = ood_csv(&self.session.settings.out, &self.experiment.name);
        let mut rows = Vec::new();
        for one in measured? {
            let mut row = self.who();
            row.push("set", &self.set);
            row.push("ood_set", ood_set);
            row.push("members", inside.shape.members.to_string());
            row.push("samples", inside.shape.samples.to_string());
            row.push("ood_samples", outside.samples().to_string());
            describe(&one, &mut row);
            upsert_row(&file, &row, OOD_KEYS)?;
            rows.push(row);
        }
        Ok(rows)
    }
}
