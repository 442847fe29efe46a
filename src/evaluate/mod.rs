//! From members and an image set to saved predictions, metrics, and rows of the results.

mod attacked;
mod condition;
mod ood;
mod predictive;
mod row;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use crate::data::versions::{Mean, Version, means};
use crate::experiment::Experiment;
use crate::images::ImageSet;
use crate::metrics::temperature::scaled_columns;
use crate::metrics::{Scores, evaluate};
use crate::predict::Predictor;
use crate::predictions::{Predictions, Shape};
use crate::results::store::{Row, upsert_row};
use crate::run::{Record, RunFolder};
use crate::session::Session;

pub use attacked::{Adversarial, AttackPlan};
pub use condition::Condition;
pub use predictive::{Predictive, Prepared};
pub use row::shown;

/// Cells that say which row of a results file is which.
pub const ROW_KEYS: &[&str] = &["run", "set", "condition", "predictive"];

/// What is evaluated on what.
pub struct Evaluation<'a> {
    pub experiment: &'a Experiment,
    pub session: &'a Session,
    pub run: &'a RunFolder,
    /// Cost of training, absent for a checkpoint as it is.
    pub record: Option<&'a Record>,
    pub predictor: Predictor<'a>,
    /// How the posterior predicts: empty for its own members, `soup`, …
    pub predictive: String,
    pub batch_size: usize,
    /// Name of the test set in results.
    pub set: String,
    /// The same members on held-out training images: temperatures are fitted on them.
    pub validation: Option<Predictions>,
}

impl Evaluation<'_> {
    /// Predicts, saves the predictions, stores the row in the run's and the experiment's results, and returns both.
    pub fn plain(&self, images: &ImageSet, condition: &Condition) -> Result<(Row, Predictions)> {
        let started = Instant::now();
        let logits = self.logits(images)?;
        self.keep(logits, images, condition, started.elapsed().as_secs_f64())
    }

    /// Predictions on held-out images: nothing is stored.
    pub fn labelled(&self, images: &ImageSet) -> Result<Predictions> {
        Predictions::new(self.shape(images.samples()), self.logits(images)?, images.split.labels.clone())
    }

    /// Logits `[m, N, C]` of all members on all images.
    fn logits(&self, images: &ImageSet) -> Result<Vec<f32>> {
        let all: Vec<u32> = (0..images.samples() as u32).collect();
        let bar = crate::logging::bar(all.len() as u64, "predicting");
        let logits = self.predictor.shared_logits(&self.session.world, images, &all, self.batch_size, &bar)?;
        bar.finish_and_clear();
        Ok(logits)
    }

    fn shape(&self, samples: usize) -> Shape {
        let classes = self.session.model.head.classes() as usize;
        Shape { members: self.predictor.members(), samples, classes }
    }

    /// Saves predictions under a condition, scores them, and stores the row.
    fn keep(
        &self,
        logits: Vec<f32>,
        images: &ImageSet,
        condition: &Condition,
        seconds: f64,
    ) -> Result<(Row, Predictions)> {
        let predictions = Predictions::new(self.shape(images.samples()), logits, images.split.labels.clone())?;
        let predictions = match &images.split.groups {
            Some(groups) => predictions.with_groups(groups.of.clone(), groups.names.clone())?,
            None => predictions,
        };
        let predictions = self.named(predictions, &condition.to_string())?;
        if self.session.world.leads() {
            predictions.save(&self.predictions_path(condition))?;
        }
        let mut row = self.describe(&predictions, condition);
        for (column, value) in evaluate(&Scores::compute(&predictions)?) {
            row.push_number(column, value);
        }
        if let Some(validation) = &self.validation {
            for (column, value) in scaled_columns(validation, &predictions)? {
                row.push_number(column, value);
            }
        }
        self.add_cost(&mut row, predictions.samples() as f64 / seconds);
        self.store(&row)?;
        Ok((row, predictions))
    }

    /// Where predictions under a condition are kept.
    fn predictions_path(&self, condition: &Condition) -> PathBuf {
        self.run.predictions(&self.set, &condition.to_string(), &self.predictive)
    }

    /// Adds class names, and what the predictions are of.
    fn named(&self, predictions: Predictions, condition: &str) -> Result<Predictions> {
        let predictions = predictions.with_class_names(self.session.classes.clone())?;
        let (experiment, run) = (self.experiment.name.clone(), self.run.id());
        let facts =
            [("experiment", experiment), ("run", run), ("set", self.set.clone()), ("condition", condition.into())];
        let facts = facts.into_iter().chain([("predictive", self.predictive.clone())]);
        predictions.with_metadata(facts.map(|(key, value)| (key.to_string(), value)).collect())
    }

    /// Stores a row, in the first process.
    fn store(&self, row: &Row) -> Result<()> {
        if !self.session.world.leads() {
            return Ok(());
        }
        upsert_row(&self.run.metrics(), row, ROW_KEYS)?;
        upsert_row(&experiment_csv(&self.session.settings.out, &self.experiment.name), row, ROW_KEYS)
    }

    /// Stores the means over published corrupted versions that `rows` are complete for, and returns them.
    pub fn means(&self, rows: &[(Version, Row)]) -> Result<Vec<Row>> {
        let evaluated: Vec<Version> = rows.iter().map(|(version, _)| version.clone()).collect();
        let row = |Mean { condition, severity, versions }: Mean| {
            let of: Vec<&Row> = rows.iter().filter(|(v, _)| versions.contains(v)).map(|(_, row)| row).collect();
            let row = self.mean_row(&of, &Condition::Mean { name: condition, severity });
            self.store(&row).map(|()| row)
        };
        means(&evaluated).into_iter().map(row).collect()
    }
}

/// The file that collects all runs of an experiment.
pub fn experiment_csv(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.csv"))
}

/// The file that collects how well the runs of an experiment tell foreign images from their own.
pub fn ood_csv(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}-ood.csv"))
}
