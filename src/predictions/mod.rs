//! The logits of all members on one image set, with labels and groups. Evaluation writes them and every metric reads
//! them. A set without labels (new images, out-of-distribution images) has uncertainty but no scores.
//!
//! Predictions are kept in a safetensors file (`logits`, `labels`, `groups`, `weights`, `score NAME`), which is memory-mapped when opened and
//! not copied. Files of other programs may have other number types; these are copied. [`answers`] has what is written instead of
//! logits where members answer questions in words, and [`numbers`] where they predict numbers.

pub mod answers;
mod file;
pub mod numbers;
mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use anyhow::{Result, bail, ensure};

use crate::base::mapped::Mapped;

pub use answers::{Answers, Reply, Token};
pub use numbers::Numbers;
use read::{as_f32, as_u32};

/// The ending of a file of predictions.
pub const ENDING: &str = "safetensors";

/// The keys of the metadata that hold the names of classes and groups.
const CLASS_NAMES: &str = "class_names";
const GROUP_NAMES: &str = "group_names";

/// The sizes of one prediction set: m members, N samples, C classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub members: usize,
    pub samples: usize,
    pub classes: usize,
}

/// Predictions of m members for N samples and C classes.
pub struct Predictions {
    shape: Shape,
    storage: Storage,
    class_names: Vec<String>,
    group_names: Vec<String>,
    metadata: BTreeMap<String, String>,
    scores: SampleScores,
}

/// Scores of the samples that do not follow from the logits, by name: each `[N]`.
pub type SampleScores = BTreeMap<String, Vec<f64>>;

struct Storage {
    /// The file that holds the mapped values. `None` if all values are owned.
    map: Option<Mapped>,
    logits: Values<f32>,
    labels: Option<Values<u32>>,
    groups: Option<Values<u32>>,
    /// The weights of the members, `[m]`; `None` if all weigh the same.
    weights: Option<Vec<f64>>,
}

/// The numbers of one tensor.
enum Values<T> {
    Owned(Vec<T>),
    /// The byte range of the numbers in the mapped file.
    Mapped(Range<usize>),
}

impl Storage {
    fn floats<'a>(&'a self, values: &'a Values<f32>) -> &'a [f32] {
        match values {
            Values::Owned(values) => values,
            Values::Mapped(range) => self.map.as_ref().map_or(&[], |map| as_f32(&map[range.clone()])),
        }
    }

    fn ids<'a>(&'a self, values: &'a Values<u32>) -> &'a [u32] {
        match values {
            Values::Owned(values) => values,
            Values::Mapped(range) => self.map.as_ref().map_or(&[], |map| as_u32(&map[range.clone()])),
        }
    }
}

impl Predictions {
    /// Creates predictions from logits `[m, N, C]` (row-major) and labels `[N]`.
    ///
    /// # Errors
    /// Fails if an axis is empty, there are fewer than two classes, a length does not match `shape`, a label is not
    /// below C, or a logit is NaN or infinite; the message then names the member and the sample.
    pub fn new(shape: Shape, logits: Vec<f32>, labels: Vec<u32>) -> Result<Self> {
        shape.check_labels(&labels)?;
        Self::owned(shape, logits, Some(labels))
    }

    /// Creates predictions like [`Predictions::new`] for a set whose true classes are unknown or not among the C
    /// classes.
    pub fn unlabelled(shape: Shape, logits: Vec<f32>) -> Result<Self> {
        Self::owned(shape, logits, None)
    }

    fn owned(shape: Shape, logits: Vec<f32>, labels: Option<Vec<u32>>) -> Result<Self> {
        let count = shape.logit_count()?;
        ensure!(logits.len() == count, "predictions: {} logits for shape {shape}, which needs {count}", logits.len());
        let (logits, labels) = (Values::Owned(logits), labels.map(Values::Owned));
        let storage = Storage { map: None, logits, labels, groups: None, weights: None };
        let (class_names, group_names) = (vec![], vec![]);
        let (metadata, scores) = (BTreeMap::new(), BTreeMap::new());
        let made = Self { shape, storage, class_names, group_names, metadata, scores };
        made.check_all_finite()?;
        Ok(made)
    }

    /// Checks all logits. A file is otherwise not checked until its metrics are computed; a check beforehand shows
    /// which of several files is damaged.
    ///
    /// # Errors
    /// Fails at the first NaN or infinite logit and names it.
    pub fn check_all_finite(&self) -> Result<()> {
        let Shape { samples, classes, .. } = self.shape;
        let mut rows = self.all_logits().chunks_exact(classes).enumerate();
        rows.try_for_each(|(at, row)| check_finite(row, at / samples, at % samples))
    }

    /// Checks that the values that were read so far were those of the file.
    ///
    /// # Errors
    /// Fails if another program has made the file shorter since it was opened.
    pub fn expect_whole(&self) -> Result<()> {
        self.storage.map.as_ref().map_or(Ok(()), Mapped::expect_whole)
    }

    /// Adds the weights `[m]` with which the members count in every average. They need not sum to 1.
    ///
    /// # Errors
    /// Fails if there is not one for each member, if one is below 0 or not finite, or if all are 0.
    pub fn with_weights(mut self, weights: Vec<f64>) -> Result<Self> {
        check_weights(&weights, self.shape.members)?;
        self.storage.weights = Some(weights);
        Ok(self)
    }

    /// Adds the names of the C classes.
    pub fn with_class_names(mut self, names: Vec<String>) -> Result<Self> {
        let classes = self.shape.classes;
        ensure!(names.len() == classes, "predictions: {} class names for {classes} classes", names.len());
        self.class_names = names;
        Ok(self)
    }

    /// Adds a group id for each sample, `[N]`, and the names of the groups.
    pub fn with_groups(mut self, ids: Vec<u32>, names: Vec<String>) -> Result<Self> {
        self.shape.check_groups(&ids, &names)?;
        self.storage.groups = Some(Values::Owned(ids));
        self.group_names = names;
        Ok(self)
    }

    /// Adds free text about the predictions by key: set, condition, run, method, …
    pub fn with_metadata(mut self, metadata: BTreeMap<String, String>) -> Result<Self> {
        for key in [CLASS_NAMES, GROUP_NAMES] {
            ensure!(!metadata.contains_key(key), "predictions: metadata key `{key}` is reserved; choose another");
        }
        self.metadata = metadata;
        Ok(self)
    }

    /// Adds scores of the samples.
    ///
    /// # Errors
    /// Fails if a name has not one number for each sample, or one that is not finite.
    pub fn with_scores(mut self, scores: SampleScores) -> Result<Self> {
        scores.iter().try_for_each(|(name, scores)| self.shape.check_scores(name, scores))?;
        self.scores = scores;
        Ok(self)
    }

    /// Returns scores of the samples that do not follow from the logits; empty unless they were added.
    pub fn scores(&self) -> &SampleScores {
        &self.scores
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn members(&self) -> usize {
        self.shape.members
    }

    pub fn samples(&self) -> usize {
        self.shape.samples
    }

    pub fn classes(&self) -> usize {
        self.shape.classes
    }

    /// Returns the logits `[C]` of one member for one sample.
    pub fn logits(&self, member: usize, sample: usize) -> &[f32] {
        let start = (member * self.shape.samples + sample) * self.shape.classes;
        &self.all_logits()[start..start + self.shape.classes]
    }

    /// Returns all logits, `[m, N, C]` row-major.
    pub fn all_logits(&self) -> &[f32] {
        self.storage.floats(&self.storage.logits)
    }

    /// Returns the weights of the members, `[m]`; `None` if all weigh the same.
    pub fn weights(&self) -> Option<&[f64]> {
        self.storage.weights.as_deref()
    }

    /// Returns the weight of a member in every average; 1 if all weigh the same.
    pub fn weight(&self, member: usize) -> f64 {
        self.weights().map_or(1.0, |weights| weights[member])
    }

    /// Returns the sum of the weights of all members; m if all weigh the same.
    pub fn total_weight(&self) -> f64 {
        self.weights().map_or(self.shape.members as f64, |weights| weights.iter().sum())
    }

    /// Returns the true classes, `[N]`, each below C. `None` for an unlabelled set.
    pub fn labels(&self) -> Option<&[u32]> {
        self.storage.labels.as_ref().map(|labels| self.storage.ids(labels))
    }

    /// Returns the group ids, `[N]`. `None` if the data set has no groups.
    pub fn groups(&self) -> Option<&[u32]> {
        self.storage.groups.as_ref().map(|groups| self.storage.ids(groups))
    }

    /// Returns the names of the groups. Empty if there are no groups.
    pub fn group_names(&self) -> &[String] {
        &self.group_names
    }

    /// Returns the names of the classes, `[C]`. Empty if they are unknown.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// Returns the names of the classes, `[C]`, or their numbers if the names are unknown.
    pub fn names_or_numbers(&self) -> Vec<String> {
        let name = |class: usize| self.class_names.get(class).cloned().unwrap_or_else(|| class.to_string());
        (0..self.classes()).map(name).collect()
    }

    /// Returns free text about the predictions by key: set, condition, run, method, …
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
}

/// Fails if a row of logits holds NaN or infinity and names the first such logit.
pub fn check_finite(row: &[f32], member: usize, sample: usize) -> Result<()> {
    match row.iter().position(|logit| !logit.is_finite()) {
        None => Ok(()),
        Some(class) => bail!(
            "predictions: logit {} of member {member}, sample {sample}, class {class}: must be finite; did training diverge, or half precision overflow?",
            row[class]
        ),
    }
}

impl Shape {
    /// Returns m · N · C. Fails if an axis is empty, there are fewer than two classes, or the product overflows.
    fn logit_count(self) -> Result<usize> {
        ensure!(
            self.members > 0 && self.samples > 0 && self.classes > 1,
            "predictions: shape [members, samples, classes] = {self}: needs one member, one sample and two classes"
        );
        let count = self.members.checked_mul(self.samples);
        match count.and_then(|rows| rows.checked_mul(self.classes)) {
            Some(count) => Ok(count),
            None => bail!("predictions: shape {self} overflows"),
        }
    }

    fn check_labels(self, labels: &[u32]) -> Result<()> {
        let (count, samples) = (labels.len(), self.samples);
        ensure!(count == samples, "predictions: {count} labels for {samples} samples");
        check_below(labels, self.classes, "label", "classes")
    }

    fn check_scores(self, name: &str, scores: &[f64]) -> Result<()> {
        let (count, samples) = (scores.len(), self.samples);
        ensure!(count == samples, "predictions: {count} scores by {name} for {samples} samples");
        let odd = scores.iter().position(|score| !score.is_finite());
        odd.map_or(Ok(()), |at| bail!("predictions: score {} by {name} of sample {at}: must be finite", scores[at]))
    }

    fn check_groups(self, ids: &[u32], names: &[String]) -> Result<()> {
        let (count, samples) = (ids.len(), self.samples);
        ensure!(count == samples, "predictions: {count} group ids for {samples} samples");
        check_below(ids, names.len(), "group", "group names")
    }
}

/// Fails unless there is a weight for each of `members` members, none below 0 and not all 0.
fn check_weights(weights: &[f64], members: usize) -> Result<()> {
    let count = weights.len();
    ensure!(count == members, "predictions: {count} weights for {members} members");
    if let Some(member) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
        bail!("predictions: weight {} of member {member}: must be a number, at least 0", weights[member]);
    }
    ensure!(weights.iter().any(|weight| *weight > 0.0), "predictions: all weights of members are 0");
    Ok(())
}

fn check_below(ids: &[u32], limit: usize, what: &str, of: &str) -> Result<()> {
    match ids.iter().position(|id| *id as usize >= limit) {
        None => Ok(()),
        Some(sample) => {
            let id = ids[sample];
            bail!("predictions: {what} {id} of sample {sample}: must be below {limit}, the number of {of}")
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}, {}]", self.members, self.samples, self.classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { members: 2, samples: 2, classes: 3 };

    fn message(result: Result<Predictions>) -> String {
        format!("{:#}", result.err().expect("must be refused"))
    }

    #[test]
    fn rows_are_member_then_sample() {
        let logits = (0..12).map(|i| i as f32).collect();
        let predictions = Predictions::new(SHAPE, logits, vec![0, 2]).unwrap();
        assert_eq!(predictions.logits(1, 0), [6.0, 7.0, 8.0]);
        assert_eq!(predictions.logits(0, 1), [3.0, 4.0, 5.0]);
    }

    #[test]
    fn wrong_sizes_and_values_are_named() {
        let new = |logits: Vec<f32>, labels| message(Predictions::new(SHAPE, logits, labels));
        assert!(new(vec![0.0; 11], vec![0, 1]).contains("11 logits for shape [2, 2, 3]"));
        assert!(new(vec![0.0; 12], vec![0]).contains("1 labels for 2 samples"));
        assert!(new(vec![0.0; 12], vec![0, 3]).contains("label 3 of sample 1"));
        let mut logits = vec![0.0; 12];
        logits[10] = f32::NAN;
        assert!(new(logits, vec![0, 1]).contains("NaN of member 1, sample 1, class 1"));
        let empty = Shape { members: 0, ..SHAPE };
        assert!(message(Predictions::new(empty, vec![], vec![0, 1])).contains("[0, 2, 3]"));
        let huge = Shape { members: usize::MAX, ..SHAPE };
        assert!(message(Predictions::new(huge, vec![], vec![0, 1])).contains("overflows"));
    }

    #[test]
    fn weights_are_checked() {
        let new = |weights: &[f64]| {
            Predictions::new(SHAPE, vec![0.0; 12], vec![0, 1]).unwrap().with_weights(weights.to_vec())
        };
        assert!(message(new(&[1.0])).contains("1 weights for 2 members"));
        assert!(message(new(&[1.0, -0.5])).contains("weight -0.5 of member 1: must be a number, at least 0"));
        assert!(message(new(&[1.0, f64::NAN])).contains("weight NaN of member 1"));
        assert!(message(new(&[0.0, 0.0])).contains("all weights of members are 0"));
        assert_eq!(new(&[3.0, 1.0]).unwrap().total_weight(), 4.0);
    }

    #[test]
    fn groups_names_and_metadata_are_checked() {
        let new = || Predictions::new(SHAPE, vec![0.0; 12], vec![0, 1]).unwrap();
        let names = || vec!["land".to_string(), "water".to_string()];
        assert!(message(new().with_groups(vec![0, 2], names())).contains("group 2 of sample 1"));
        assert!(message(new().with_class_names(names())).contains("2 class names for 3 classes"));
        let reserved = BTreeMap::from([(CLASS_NAMES.to_string(), String::new())]);
        assert!(message(new().with_metadata(reserved)).contains("reserved"));
    }
}
