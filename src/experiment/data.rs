//! `[data.*]`: the data set, and the keys that all data sets share.

use std::path::PathBuf;

use crate::data::order::{Holdout, stratified_validation_split};
use crate::data::{Augment, DATASETS, Dataset, Medium, SplitName};
use crate::schema::{Bounds, Problems, Reader, Tree, Value};

/// The table `[data.*]`: the data set, and the settings that all data sets share.
pub struct DataSpec {
    pub key: String,
    pub dataset: Box<dyn Dataset>,
    /// The name of the test set in results; the data set's own by default.
    pub label: String,
    /// The folder on disk that keeps decoded images; data sets of image files use it.
    pub cache: Option<PathBuf>,
    /// The random views of training images.
    pub augment: Option<Augment>,
    pub validation: Validation,
    /// The share of the training images whose label is replaced by another class, to see which methods notice.
    pub label_noise: f64,
}

/// The images by which epochs and settings are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Validation {
    /// A share of the training images, held out of each class; 0 for none.
    HeldOut(f64),
    /// The published validation split, so that all training images are used.
    Published,
}

const ABOUT_VALIDATION: &str =
    "Share of the training images that is held out, or `\"val\"` for the published validation split.";

impl Validation {
    /// Returns whether there are no validation images.
    pub fn is_none(self) -> bool {
        self == Validation::HeldOut(0.0)
    }

    /// Splits the training images `labels: [N]` in two. No image is held out if the validation split is published.
    pub fn holdout(self, seed: u64, labels: &[u32]) -> Holdout {
        match self {
            Validation::HeldOut(share) => stratified_validation_split(seed, labels, share),
            Validation::Published => Holdout { train: (0..labels.len() as u32).collect(), validation: Vec::new() },
        }
    }

    /// Reads a share, or the word `"val"`.
    fn read(reader: &Reader) -> Validation {
        if !reader.is_text("validation") {
            return Validation::HeldOut(
                reader.float("validation", Bounds::from_below(0.0, 1.0)).about(ABOUT_VALIDATION).or(0.0),
            );
        }
        if reader.string("validation").about(ABOUT_VALIDATION).optional().is_some_and(|word| word != "val") {
            reader.problem("validation", "must be a number from 0 to below 1, or \"val\" for the published split");
            return Validation::HeldOut(0.0);
        }
        Validation::Published
    }

    /// Returns the value as the resolved config states it.
    pub fn resolved(self) -> toml::Value {
        match self {
            Validation::HeldOut(share) => share.into(),
            Validation::Published => "val".into(),
        }
    }
}

impl DataSpec {
    /// Reads the data set of a config and ignores its other tables.
    ///
    /// # Errors
    /// Fails with every mistake in the table.
    pub fn alone(mut tree: Tree) -> Result<DataSpec, Problems> {
        if let Value::Table(all) = &mut tree.root.value {
            all.retain(|key, _| key == "data");
        }
        let root = Reader::root(&tree);
        match DataSpec::read(&root) {
            Some(data) => root.close(data),
            None => Err(root.close(()).err().unwrap_or_default()),
        }
    }

    /// Returns the test sets that are evaluated separately, each with its label; empty if there is only one.
    pub fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        let sets = self.dataset.test_sets().into_iter();
        sets.map(|(name, set)| (format!("{}-{name}", self.label), set)).collect()
    }

    /// Returns the names of all test sets in results.
    pub fn test_names(&self) -> Vec<String> {
        let names: Vec<String> = self.test_sets().into_iter().map(|(name, _)| name).collect();
        if names.is_empty() { vec![self.label.clone()] } else { names }
    }

    /// Reads the table and records mistakes in the reader.
    pub fn read(root: &Reader) -> Option<DataSpec> {
        let known: Vec<&str> = DATASETS.iter().map(|e| e.key).collect();
        let (key, mut reader) = root.one_of("data", &known)?;
        let entry = DATASETS.iter().find(|e| e.key == key)?;
        let label = reader.string("label").about("Name of the data set in results.").optional();
        let validation = Validation::read(&reader);
        let label_noise = reader
            .float("label_noise", Bounds::from_below(0.0, 1.0))
            .about("Share of the training images whose label is replaced by that of another class.")
            .or(0.0);
        let cache = reader
            .path("cache")
            .about("Folder that keeps decoded, resized images for later epochs and runs.")
            .optional();
        let augment = Augment::read(&reader);
        let dataset = (entry.read)(&mut reader);
        if cache.is_some() && dataset.resize().is_none() {
            reader
                .problem("cache", format!("{key} is read as it is stored, so there is nothing to keep; leave it out"));
        }
        let medium = dataset.medium();
        if augment.is_some() && medium != Medium::Images {
            reader.problem("augment", format!("{key} has {medium}, which have no random views; leave it out"));
        }
        let published = dataset.published();
        if validation == Validation::Published
            && !published.images.is_empty()
            && published.images_of(SplitName::Val).is_none()
        {
            reader.problem("validation", format!("{key} has no split `val` as it is set; give a share, say 0.1"));
        }
        reader.finish();
        let label = label.unwrap_or_else(|| dataset.label());
        Some(DataSpec { key, dataset, label, cache, augment, validation, label_noise })
    }
}
