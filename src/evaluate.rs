//! From members and an image set to saved predictions, metrics, and a row of the results.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use crate::config::Experiment;
use crate::images::ImageSet;
use crate::metrics::{Scores, evaluate};
use crate::predict::{self, Members};
use crate::predictions::{Predictions, Shape};
use crate::results::store::{Row, upsert_row};
use crate::run::{Record, RunFolder};
use crate::session::Session;

/// Cells that say which row of a results file is which.
pub const ROW_KEYS: &[&str] = &["run", "set", "condition"];

/// What is evaluated on what.
pub struct Evaluation<'a> {
    pub experiment: &'a Experiment,
    pub session: &'a Session,
    pub run: &'a RunFolder,
    /// Cost of training, absent for a checkpoint as it is.
    pub record: Option<&'a Record>,
    pub members: Members<'a>,
    pub batch_size: usize,
    /// Name of the test set in results.
    pub set: String,
    /// `clean`, or what was done to the images.
    pub condition: String,
}

impl Evaluation<'_> {
    /// Predicts, saves the predictions, appends the row to the run's and the experiment's results, and returns it.
    pub fn run(&self, images: &ImageSet) -> Result<Row> {
        let started = Instant::now();
        let predictions = self.predict(images)?;
        let predict_seconds = started.elapsed().as_secs_f64();
        predictions.save(&self.run.predictions(&self.set, &self.condition))?;
        let scores = Scores::compute(&predictions)?;
        let mut row = self.describe(&predictions)?;
        for (column, value) in evaluate(&scores) {
            row.push_number(column, value);
        }
        self.add_cost(&mut row, predictions.samples(), predict_seconds);
        upsert_row(&self.run.metrics(), &row, ROW_KEYS)?;
        upsert_row(&experiment_csv(&self.session.settings.out, &self.experiment.name), &row, ROW_KEYS)?;
        Ok(row)
    }

    fn predict(&self, images: &ImageSet) -> Result<Predictions> {
        let all: Vec<u32> = (0..images.samples() as u32).collect();
        let bar = crate::logging::bar(all.len() as u64, "predicting");
        let logits = predict::logits(&self.session.model, &self.members, images, &all, self.batch_size, &bar)?;
        bar.finish_and_clear();
        let shape = Shape {
            members: self.members.count(),
            samples: all.len(),
            classes: self.session.model.head.classes() as usize,
        };
        let predictions = Predictions::new(shape, logits, images.split.labels.clone())?;
        let predictions = predictions.with_class_names(self.session.classes.clone())?;
        let predictions = match &images.split.groups {
            Some(groups) => predictions.with_groups(groups.of.clone(), groups.names.clone())?,
            None => predictions,
        };
        predictions.with_metadata(BTreeMap::from([
            ("experiment".to_string(), self.experiment.name.clone()),
            ("run".to_string(), self.run.id()),
            ("set".to_string(), self.set.clone()),
            ("condition".to_string(), self.condition.clone()),
        ]))
    }

    fn describe(&self, predictions: &Predictions) -> Result<Row> {
        let mut row = Row::new();
        row.push("experiment", &self.experiment.name);
        row.push("run", self.run.id());
        match &self.experiment.training {
            Some(training) => {
                row.push("subspace", &training.subspace.key);
                row.push("method", &training.method.key);
                row.push("rank", training.subspace.spec.rank().map_or(String::new(), |rank| rank.to_string()));
                row.push("particles", training.method.spec.particles().to_string());
            }
            None => {
                row.push("subspace", "");
                row.push("method", "checkpoint");
            }
        }
        row.push("seed", self.experiment.seed.to_string());
        row.push("set", &self.set);
        row.push("condition", &self.condition);
        row.push("members", predictions.members().to_string());
        row.push("samples", predictions.samples().to_string());
        row.push("classes", predictions.classes().to_string());
        Ok(row)
    }

    fn add_cost(&self, row: &mut Row, samples: usize, predict_seconds: f64) {
        if let Some(record) = self.record {
            row.push("trainable_parameters", record.trainable_parameters.to_string());
            row.push_number("train_wall_seconds", Some(record.wall_seconds));
            row.push_number("train_images_per_second", Some(record.images_per_second));
            row.push_number("train_peak_memory_bytes", record.peak_memory_bytes.map(|bytes| bytes as f64));
            row.push("selected_epoch", record.selected_epoch.to_string());
        }
        row.push_number("predict_images_per_second", Some(samples as f64 / predict_seconds));
        row.push("device", crate::device::name(self.session.device));
        row.push("precision", crate::device::precision_name(self.session.model.kind));
        if let Some(training) = &self.experiment.training {
            let settings = [
                (training.method.key.as_str(), training.method.spec.resolved()),
                (training.optimizer.key.as_str(), training.optimizer.spec.resolved()),
            ];
            for (key, table) in settings {
                for (name, value) in table.into_iter().filter(|(name, _)| name != "particles") {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                    row.push(format!("{key}.{name}"), text);
                }
            }
        }
    }
}

/// The file that collects all runs of an experiment.
pub fn experiment_csv(out: &Path, name: &str) -> std::path::PathBuf {
    out.join(format!("{name}.csv"))
}
