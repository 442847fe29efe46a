//! The cells of a row: what was run, what it cost, and with which settings.
//!
//! Predictions are kept in one file per measurement. Those on other images, sets or conditions never replace them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::matched::chosen_names;
use super::{Condition, Evaluation, PlainName};
use crate::data::Fingerprint;
use crate::metrics;
use crate::model::checkpoint_name;
use crate::results::store::Row;
use crate::run::{IMAGES, open_outcome};
use crate::tasks::{About, Outcome};

impl Evaluation<'_> {
    pub(super) fn describe(&self, predictions: &dyn Outcome, condition: &Condition, images: Fingerprint) -> Row {
        let mut row = self.who();
        row.push("set", &self.set);
        condition.describe(&mut row);
        row.push("members", predictions.members().to_string());
        row.push("samples", predictions.samples().to_string());
        row.push("images", images.short());
        if let Some(logits) = predictions.logits() {
            row.push("classes", logits.classes().to_string());
        }
        if self.predictor.chosen_classes().is_some() {
            row.push("narrowed_from", self.session.classes.len().to_string());
        }
        row
    }

    /// Returns the cells that identify a posterior: run, subspace, method, seed.
    pub(super) fn who(&self) -> Row {
        let mut row = Row::new();
        row.push("experiment", &self.experiment.name);
        row.push("run", self.run.id());
        row.push("config", &self.group.config);
        row.push("checkpoint", checkpoint_name(&self.experiment.checkpoint.path.known_as()));
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
        row.push("predictive", &self.predictive);
        row.push("seed", self.experiment.seed.to_string());
        row
    }

    pub(super) fn add_cost(&self, row: &mut Row, predict_images_per_second: f64) {
        if let Some(cost) = &self.cost {
            row.push("trainable_parameters", cost.trainable_parameters.to_string());
            row.push_number("train_wall_seconds", Some(cost.wall_seconds));
            row.push_number("train_processor_seconds", cost.processor_seconds);
            row.push_number("train_images_per_second", Some(cost.images_per_second));
            row.push_number("train_peak_memory_bytes", cost.peak_memory_bytes.map(|bytes| bytes as f64));
            row.push("selected_epoch", cost.selected_epoch.map_or(String::new(), |epoch| epoch.to_string()));
        }
        row.push_number("predict_images_per_second", Some(predict_images_per_second));
        row.push("device", crate::machine::device::name(self.session.device));
        row.push("precision", crate::machine::device::precision_name(self.session.model.kind));
        self.add_settings(row);
    }

    fn add_settings(&self, row: &mut Row) {
        let new =
            self.group.settings.iter().filter(|(column, _)| row.get(column).is_none()).cloned().collect::<Vec<_>>();
        new.into_iter().for_each(|(column, value)| row.push(column, value));
    }

    /// Returns a row under `condition` whose metrics are means over `rows`. A mean is empty if any of its values is.
    pub(super) fn mean_row(&self, rows: &[&Row], condition: &Condition) -> Row {
        let mut row = self.who();
        row.push("set", &self.set);
        condition.describe(&mut row);
        row.push("images", Fingerprint::of_all(rows.iter().filter_map(|row| row.get("images"))).short());
        let Some(first) = rows.first() else { return row };
        for (column, value) in first.cells() {
            if metrics::of_column(column).is_some() {
                let values: Option<Vec<f64>> = rows.iter().map(|row| row.get(column)?.parse().ok()).collect();
                row.push_number(column, values.map(|values| values.iter().sum::<f64>() / values.len() as f64));
            } else if row.get(column).is_none() && rows.iter().all(|row| row.get(column) == Some(value)) {
                row.push(column, value);
            }
        }
        if row.get("samples").is_none() {
            row.push("samples", "");
        }
        row
    }
}

/// The metadata keys that identify what was predicted.
const IDENTITY: &[&str] = &["set", "condition", "predictive"];

/// The content of an existing file, compared with the predictions to be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// There is no file, or it is damaged.
    Nobody,
    /// An earlier measurement of the same predictions.
    Same,
    /// The same predictions of other images.
    OtherImages,
    /// Predictions of something else.
    Other,
}

impl Evaluation<'_> {
    /// Returns the class names and the metadata that identify what is predicted.
    pub(super) fn about(&self, condition: &Condition, images: Fingerprint) -> About {
        let mut facts = Row::new();
        facts.push("experiment", &self.experiment.name);
        facts.push("run", self.run.id());
        facts.push("set", &self.set);
        condition.describe(&mut facts);
        facts.push("predictive", &self.predictive);
        facts.push(IMAGES, images.short());
        let metadata = facts.cells().iter().cloned().collect();
        About { classes: chosen_names(&self.session.classes, self.predictor.chosen_classes()), metadata }
    }

    /// Saves predictions and returns their path. Only the first process writes. Scores of features that an earlier evaluation has saved
    /// with the same logits stay.
    pub(super) fn save(&self, predictions: &dyn Outcome) -> Result<Option<PathBuf>> {
        if !self.session.group.is_main() {
            return Ok(None);
        }
        let path = self.place(predictions)?;
        match predictions.logits() {
            Some(of_classes) => of_classes.save_beside_scores(&path)?,
            None => predictions.save(&path)?,
        }
        Ok(Some(path))
    }

    /// Returns the plain path, or, if that is taken or reserved, one with the fingerprint of the images. From the run's own test set nothing
    /// takes it: predictions of the images that this had before move to their fingerprint.
    fn place(&self, predictions: &dyn Outcome) -> Result<PathBuf> {
        let plain = self.path(predictions, None);
        match (holder(&plain, predictions), self.plain_name) {
            (Holder::Same, _) | (Holder::Nobody, PlainName::Own | PlainName::IfFree) => Ok(plain),
            (Holder::OtherImages, PlainName::Own) => {
                let former = self.beside(&*open_outcome(&plain)?);
                std::fs::rename(&plain, &former).with_context(|| format!("cannot rename {}", plain.display()))?;
                Ok(plain)
            }
            _ => Ok(self.beside(predictions)),
        }
    }

    /// Returns the path of predictions with the fingerprint of their images.
    fn beside(&self, predictions: &dyn Outcome) -> PathBuf {
        let images = format!("images-{}", fact(predictions, IMAGES));
        // A number is needed only for sets whose names differ in characters that file names cannot hold.
        let numbered = (2..).map(|number| format!("{images}-{number}"));
        let paths = std::iter::once(images.clone()).chain(numbered).map(|name| self.path(predictions, Some(&name)));
        let mut free = paths.filter(|path| matches!(holder(path, predictions), Holder::Nobody | Holder::Same));
        free.next().expect("there are more numbers than files")
    }

    /// Returns the path of predictions whose name ends with `images`, if that is given.
    fn path(&self, predictions: &dyn Outcome, images: Option<&str>) -> PathBuf {
        let parts = IDENTITY.iter().map(|key| fact(predictions, key)).chain(images).collect::<Vec<_>>();
        self.run.predicted(&parts, self.experiment.task.ending())
    }
}

fn fact<'a>(predictions: &'a dyn Outcome, key: &str) -> &'a str {
    predictions.metadata().get(key).map_or("", String::as_str)
}

fn holder(path: &Path, new: &dyn Outcome) -> Holder {
    // A damaged file, or that of another run, is replaced.
    let Ok(old) = open_outcome(path) else { return Holder::Nobody };
    let same = |key: &str| fact(&*old, key) == fact(new, key);
    match (IDENTITY.iter().all(|key| same(key)), same(IMAGES)) {
        (true, true) => Holder::Same,
        (true, false) if !fact(&*old, IMAGES).is_empty() => Holder::OtherImages,
        _ => Holder::Other,
    }
}
