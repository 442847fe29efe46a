//! All members' logits on one image set, with labels and groups: what evaluation writes and every metric reads.
//! A set without labels (new images, out-of-distribution images) has uncertainty but no scores.
//! Kept as a safetensors file (`logits`, `labels`, `groups`) that is memory-mapped, not copied, when opened. Files of others
//! may have other types of numbers, which are copied.

mod bytes;
mod file;
mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use anyhow::{Result, bail, ensure};
use memmap2::Mmap;

use bytes::{as_f32, as_u32};

/// Keys of the metadata that hold the names of classes and groups.
const CLASS_NAMES: &str = "class_names";
const GROUP_NAMES: &str = "group_names";

/// Sizes of one prediction set: m members, N samples, C classes.
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
}

struct Storage {
    /// The file that mapped values lie in.
    map: Option<Mmap>,
    logits: Values<f32>,
    labels: Option<Values<u32>>,
    groups: Option<Values<u32>>,
}

/// The numbers of one tensor.
enum Values<T> {
    Owned(Vec<T>),
    /// The bytes of the mapped file that hold them.
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
    /// Takes logits `[m, N, C]` (row-major) and labels `[N]`.
    ///
    /// Errors: an empty axis, fewer than two classes, lengths that do not fit `shape`, a label ≥ C, a NaN or infinite
    /// logit (named by member and sample).
    pub fn new(shape: Shape, logits: Vec<f32>, labels: Vec<u32>) -> Result<Self> {
        shape.check_labels(&labels)?;
        Self::owned(shape, logits, Some(labels))
    }

    /// As [`Predictions::new`] for a set whose true classes are unknown, or none of the C.
    pub fn unlabelled(shape: Shape, logits: Vec<f32>) -> Result<Self> {
        Self::owned(shape, logits, None)
    }

    fn owned(shape: Shape, logits: Vec<f32>, labels: Option<Vec<u32>>) -> Result<Self> {
        let count = shape.logit_count()?;
        ensure!(logits.len() == count, "predictions: {} logits for shape {shape}, which needs {count}", logits.len());
        let (logits, labels) = (Values::Owned(logits), labels.map(Values::Owned));
        let storage = Storage { map: None, logits, labels, groups: None };
        let made = Self { shape, storage, class_names: vec![], group_names: vec![], metadata: BTreeMap::new() };
        made.check_all_finite()?;
        Ok(made)
    }

    /// Errors if there is a NaN or infinite logit, naming the first. Files are not checked when they are opened but
    /// while their metrics are computed; this tells which of several files it is.
    pub fn check_all_finite(&self) -> Result<()> {
        let Shape { samples, classes, .. } = self.shape;
        let mut rows = self.all_logits().chunks_exact(classes).enumerate();
        rows.try_for_each(|(at, row)| check_finite(row, at / samples, at % samples))
    }

    /// Adds the names of the C classes.
    pub fn with_class_names(mut self, names: Vec<String>) -> Result<Self> {
        let classes = self.shape.classes;
        ensure!(names.len() == classes, "predictions: {} class names for {classes} classes", names.len());
        self.class_names = names;
        Ok(self)
    }

    /// Adds a group id per sample, `[N]`, and the groups' names.
    pub fn with_groups(mut self, ids: Vec<u32>, names: Vec<String>) -> Result<Self> {
        self.shape.check_groups(&ids, &names)?;
        self.storage.groups = Some(Values::Owned(ids));
        self.group_names = names;
        Ok(self)
    }

    /// Adds free text about the predictions: set, condition, run, method, …
    pub fn with_metadata(mut self, metadata: BTreeMap<String, String>) -> Result<Self> {
        for key in [CLASS_NAMES, GROUP_NAMES] {
            ensure!(!metadata.contains_key(key), "predictions: metadata key `{key}` is reserved; choose another");
        }
        self.metadata = metadata;
        Ok(self)
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

    /// The logits `[C]` of one member for one sample.
    pub fn logits(&self, member: usize, sample: usize) -> &[f32] {
        let start = (member * self.shape.samples + sample) * self.shape.classes;
        &self.all_logits()[start..start + self.shape.classes]
    }

    /// All logits, `[m, N, C]` row-major.
    pub fn all_logits(&self) -> &[f32] {
        self.storage.floats(&self.storage.logits)
    }

    /// True classes, `[N]`, each < C; `None` for an unlabelled set.
    pub fn labels(&self) -> Option<&[u32]> {
        self.storage.labels.as_ref().map(|labels| self.storage.ids(labels))
    }

    /// Group ids, `[N]`, where the data set has groups.
    pub fn groups(&self) -> Option<&[u32]> {
        self.storage.groups.as_ref().map(|groups| self.storage.ids(groups))
    }

    /// Names of the groups; empty without groups.
    pub fn group_names(&self) -> &[String] {
        &self.group_names
    }

    /// Names of the classes, `[C]`; empty if unknown.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// Free text by key: set, condition, run, method, …
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
}

/// Errors if a row of logits holds NaN or infinity, naming where.
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
    /// m · N · C, or an error if an axis is empty or the product overflows.
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

    fn check_groups(self, ids: &[u32], names: &[String]) -> Result<()> {
        let (count, samples) = (ids.len(), self.samples);
        ensure!(count == samples, "predictions: {count} group ids for {samples} samples");
        check_below(ids, names.len(), "group", "group names")
    }
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
    fn groups_names_and_metadata_are_checked() {
        let new = || Predictions::new(SHAPE, vec![0.0; 12], vec![0, 1]).unwrap();
        let names = || vec!["land".to_string(), "water".to_string()];
        assert!(message(new().with_groups(vec![0, 2], names())).contains("group 2 of sample 1"));
        assert!(message(new().with_class_names(names())).contains("2 class names for 3 classes"));
        let reserved = BTreeMap::from([(CLASS_NAMES.to_string(), String::new())]);
        assert!(message(new().with_metadata(reserved)).contains("reserved"));
    }
}
