//! The interface of tasks.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use tch::Tensor;

use crate::data::Medium;
use crate::data::batches::SampleSet;
use crate::machine::parallel::ProcessGroup;
use crate::metrics::{Metric, Scores, answers, evaluate, numbers};
use crate::model::Input;
use crate::model::head::Head;
use crate::model::network::Weights;
use crate::predict::Predictor;
use crate::predictions;
use crate::predictions::{Answers, Numbers, Predictions};

/// The loss of labels.
pub trait Loss {
    /// Returns the losses of samples, `[p', B]`, from their features and labels, with p' particles.
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor;

    /// Returns the factor of the losses of a batch of samples of these classes; `None` if it is 1.
    fn scale(&self, _labels: &mut dyn Iterator<Item = u32>) -> Option<f64> {
        None
    }
}

/// The thing that a model learns from labels.
pub trait Task: Loss {
    /// Returns the words for the labels that are learnt, where there are this many classes.
    fn learnt(&self, classes: usize) -> String;

    /// Returns the names of the predicted values, in words, given those of the classes.
    fn names(&self, classes: &[String]) -> String;

    /// Returns the name of the pipeline for such samples, as model cards of the Hugging Face hub have it.
    fn pipeline(&self, medium: Medium) -> &'static str {
        medium.pipeline()
    }

    /// Returns the numbers of held-out samples in the row of an epoch, `by` the metric that compares epochs.
    ///
    /// # Errors
    /// Fails if samples cannot be read, if memory does not suffice, or if a number is not finite.
    fn validate(&self, predictor: &Predictor, held_out: &Batched, by: &Metric) -> Result<Validated>;

    /// Predicts a test set.
    ///
    /// # Errors
    /// Fails if samples cannot be read, if the members cannot predict them, or if memory does not suffice.
    fn predict(&self, predictor: &Predictor, tests: &Batched, about: About) -> Result<Box<dyn Outcome>>;

    /// Returns the logits of members for samples, `[m, B, …]`, by which an export is compared.
    ///
    /// # Errors
    /// Fails if the samples cannot be predicted.
    fn logits(&self, predictor: &Predictor, input: &Input) -> Result<Tensor>;

    /// Returns the ending of the files of predictions.
    fn ending(&self) -> &'static str;

    /// Returns the most tokens that are written after a sample; `None` where nothing is written.
    fn written(&self) -> Option<usize> {
        None
    }

    /// Returns whether predictions are logits of classes, of which probabilities, attacks and the detection of foreign sets follow.
    fn has_classes(&self) -> bool {
        true
    }

    /// Returns why test sets can be evaluated as they are alone: not corrupted, attacked, or separated from others.
    fn only_clean(&self) -> Option<&'static str> {
        None
    }

    /// Returns about how many bytes are saved of a test sample that members predict.
    fn saved_bytes(&self, members: u64, classes: u64) -> u64;
}

/// Samples that the processes of a group predict together, in batches.
#[derive(Clone, Copy)]
pub struct Batched<'a> {
    pub group: &'a ProcessGroup,
    pub set: &'a SampleSet,
    pub indices: &'a [u32],
    pub batch_size: usize,
}

/// The facts that a file of predictions states about itself: the names of the classes, and others by key.
pub struct About {
    pub classes: Vec<String>,
    pub metadata: BTreeMap<String, String>,
}

/// The numbers of held-out samples; all are `None` if no sample is held out, accuracy and ECE if samples have no classes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Validated {
    pub nll: Option<f64>,
    pub accuracy: Option<f64>,
    pub ece: Option<f64>,
    /// The metric by which epochs are compared; `None` also if it is not defined for these samples.
    pub criterion: Option<f64>,
}

/// The predictions of members for the samples of a test set.
pub trait Outcome {
    fn members(&self) -> usize;

    fn samples(&self) -> usize;

    /// Returns the facts that say to which samples the predictions belong.
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

    /// Returns the predicted numbers, if there are any.
    fn numbers(&self) -> Option<&Numbers> {
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

impl Outcome for Numbers {
    fn members(&self) -> usize {
        self.members()
    }

    fn samples(&self) -> usize {
        self.samples()
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn metrics(&self) -> Result<Vec<(String, Option<f64>)>> {
        Ok(numbers::evaluate(&numbers::of_all(self)))
    }

    fn numbers(&self) -> Option<&Numbers> {
        Some(self)
    }

    fn save(&self, path: &Path) -> Result<()> {
        self.save(path)
    }
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

/// Returns whether a file holds answers in words instead of logits.
pub fn is_answers(path: &Path) -> bool {
    has_ending(path, predictions::answers::ENDING)
}

/// Returns whether a file holds logits of classes, rather than answers or numbers.
pub fn has_logits(path: &Path) -> bool {
    !is_answers(path) && !has_ending(path, predictions::numbers::ENDING)
}

/// Reads a saved file.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn open(path: &Path) -> Result<Box<dyn Outcome>> {
    if has_logits(path) {
        return Ok(Box::new(Predictions::open(path)?));
    }
    Ok(if is_answers(path) { Box::new(Answers::open(path)?) } else { Box::new(Numbers::open(path)?) })
}
