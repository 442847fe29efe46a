//! The file that is kept of the predictions of a test set, and the metrics that follow from it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::metrics::{Scores, answers, evaluate};
use crate::predictions::answers::ENDING;
use crate::predictions::{Answers, Predictions};

/// The predictions of members for the samples of a test set.
pub trait Outcome {
    fn members(&self) -> usize;

    fn samples(&self) -> usize;

    /// Returns the facts that say of what they are.
    fn metadata(&self) -> &BTreeMap<String, String>;

    /// Returns the columns of the metrics and their values. Undefined values are `None`.
    ///
    /// # Errors
    /// Fails if a number of theirs is not finite.
    fn metrics(&self) -> Result<Vec<(String, Option<f64>)>>;

    /// Writes the file.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    fn save(&self, path: &Path) -> Result<()>;

    /// Returns the logits of classes, if there are any: of these, probabilities are calibrated.
    fn logits(&self) -> Option<&Predictions> {
        None
    }
}

impl Outcome for Predictions {
    fn members(&self) -> usize {
        self.members()
    }

    fn samples(&self) -> usize {
        self.samples()
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        self.metadata()
    }

    fn metrics(&self) -> Result<Vec<(String, Option<f64>)>> {
        Ok(evaluate(&Scores::compute(self)?))
    }

    fn save(&self, path: &Path) -> Result<()> {
        self.save(path)
    }

    fn logits(&self) -> Option<&Predictions> {
        Some(self)
    }
}

impl Outcome for Answers {
    fn members(&self) -> usize {
        self.members
    }

    fn samples(&self) -> usize {
        self.replies.len()
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn metrics(&self) -> Result<Vec<(String, Option<f64>)>> {
        Ok(answers::evaluate(&answers::Scored::of_all(self)))
    }

    fn save(&self, path: &Path) -> Result<()> {
        self.save(path)
    }
}

/// Returns whether a file holds answers in words instead of logits.
pub fn is_answers(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

/// Reads a saved file.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn open(path: &Path) -> Result<Box<dyn Outcome>> {
    Ok(if is_answers(path) { Box::new(Answers::open(path)?) } else { Box::new(Predictions::open(path)?) })
}
