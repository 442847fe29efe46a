//! The files that keep predictions: one per measurement. Predictions on other images, sets or conditions never replace
//! them.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Evaluation;
use crate::data::Fingerprint;
use crate::run::open_outcome;
use crate::tasks::{About, Outcome};

/// The metadata keys that identify what was predicted.
const IDENTITY: &[&str] = &["set", "condition", "predictive"];

/// The metadata key of the images' fingerprint.
pub const IMAGES: &str = "images";

/// The content of an existing file, compared with the predictions to be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// There is no file, or it is damaged.
    Nobody,
    /// An earlier measurement of the same predictions.
    Same,
    /// Predictions of something else.
    Other,
}

impl Evaluation<'_> {
    /// Returns the class names and the metadata that identify what is predicted.
    pub(super) fn about(&self, condition: &str, images: Fingerprint) -> About {
        let facts = [
            ("experiment", self.experiment.name.clone()),
            ("run", self.run.id()),
            ("set", self.set.clone()),
            ("condition", condition.to_string()),
            ("predictive", self.predictive.clone()),
            (IMAGES, images.short()),
        ];
        let metadata = facts.map(|(key, value)| (key.to_string(), value)).into();
        About { classes: self.session.classes.clone(), metadata }
    }

    /// Saves predictions and returns their path. Only the first process writes.
    pub(super) fn save(&self, predictions: &dyn Outcome) -> Result<Option<PathBuf>> {
        if !self.session.group.is_main() {
            return Ok(None);
        }
        let path = self.place(predictions);
        predictions.save(&path)?;
        Ok(Some(path))
    }

    /// Returns the plain path, or, if that is taken or reserved, one with the fingerprint of the images.
    fn place(&self, predictions: &dyn Outcome) -> PathBuf {
        let [set, condition, predictive, images] =
            ["set", "condition", "predictive", IMAGES].map(|key| fact(predictions, key));
        let path = |parts: &[&str]| self.run.predicted(parts, self.experiment.task.ending());
        let plain = path(&[set, condition, predictive]);
        match holder(&plain, predictions) {
            Holder::Same => return plain,
            Holder::Nobody if self.names_files => return plain,
            Holder::Nobody | Holder::Other => {}
        }
        let images = format!("images-{images}");
        // A number is needed only for sets whose names differ in characters that file names cannot hold.
        let numbered = (2..).map(|number| format!("{images}-{number}"));
        let names = std::iter::once(images.clone()).chain(numbered);
        let mut paths = names.map(|name| path(&[set, condition, predictive, &name]));
        paths.find(|path| holder(path, predictions) != Holder::Other).unwrap_or(plain)
    }
}

fn fact<'a>(predictions: &'a dyn Outcome, key: &str) -> &'a str {
    predictions.metadata().get(key).map_or("", String::as_str)
}

fn holder(path: &Path, new: &dyn Outcome) -> Holder {
    // A damaged file, or that of another run, is replaced.
    let Ok(old) = open_outcome(path) else { return Holder::Nobody };
    let same = IDENTITY.iter().chain([&IMAGES]).all(|key| fact(&*old, key) == fact(new, key));
    if same { Holder::Same } else { Holder::Other }
}
