//! `[data.*]`: the data set, and the keys that all data sets share.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::data::order::{Holdout, stratified_validation_split};
use crate::data::{Augment, DATASETS, Dataset, Entry, Medium, Resize, SplitName, listed};
use crate::hub::commit_in;
use crate::schema::{Problems, Reader, Tree, Value, limits, settings};

settings! {
    /// The table `[data.*]`: the data set, and the settings that all data sets share.
    pub struct DataSpec(entry: &'static Entry) {
        pub key: String, given entry.key.to_string();
        // The data set's own name is known once its keys are read.
        /// Name of the data set in results.
        pub label: String, unset String::new();
        pub validation: Validation, by Validation::read;
        /// Share of the training images whose label is replaced by that of another class.
        pub label_noise: f64 = 0.0, in from_below(0.0, 1.0), omit 0.0;
        /// Folder that keeps decoded, resized images for later epochs and runs.
        pub cache: Option<PathBuf>;
        pub augment: Option<Augment>, by |reader| reader.table_if_given("augment", Augment::read);
        pub dataset: Box<dyn Dataset>, part entry.read;
    } then check
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
                reader.float("validation", limits::from_below(0.0, 1.0)).about(ABOUT_VALIDATION).or(0.0),
            );
        }
        if reader.string("validation").about(ABOUT_VALIDATION).optional().is_some_and(|word| word != "val") {
            reader.problem("validation", "must be a number from 0 to below 1, or \"val\" for the published split");
            return Validation::HeldOut(0.0);
        }
        Validation::Published
    }
}

impl Serialize for Validation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Validation::HeldOut(share) => serializer.serialize_f64(*share),
            Validation::Published => serializer.serialize_str("val"),
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
        match DataSpec::of(&root) {
            Some(data) => root.close(data),
            None => Err(root.close(()).err().unwrap_or_default()),
        }
    }

    /// Returns the commit of the repository that the data set is read from, if it is one of the Hub.
    pub fn commit(&self) -> Option<String> {
        commit_in(self.dataset.resolved().get("root")?.as_str()?)
    }

    /// Returns whether the samples are in files that the user makes and may change. Those of a published set do not change, and those of a
    /// repository of the Hub have its commit.
    pub fn is_own(&self) -> bool {
        self.dataset.published().images.is_empty() && self.commit().is_none()
    }

    /// Lists the samples that are trained on and, where they are a split of their own, validated on, and returns their hash; `None` if they
    /// are not the user's own. A training that reads the files anyway computes the same hash from them.
    ///
    /// # Errors
    /// Fails if the files cannot be read.
    pub fn contents(&self) -> Result<Option<String>> {
        if !self.is_own() {
            return Ok(None);
        }
        let published = (self.validation == Validation::Published).then_some(SplitName::Val);
        let splits: Vec<SplitName> = [SplitName::Train].into_iter().chain(published).collect();
        listed(&*self.dataset, &splits).map(Some)
    }

    /// Returns the test sets that are evaluated separately, each with its label; empty if there is only one.
    pub fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        let sets = self.dataset.test_sets().into_iter();
        sets.map(|(name, set)| (format!("{}-{name}", self.label), set)).collect()
    }

    /// Returns the result of `read` for every test set: for each of several ones, or else for the only one. It receives the label in
    /// results.
    ///
    /// # Errors
    /// Fails if `read` does.
    pub fn each_test_set<T>(&self, mut read: impl FnMut(&str, &dyn Dataset) -> Result<T>) -> Result<Vec<T>> {
        let sets = self.test_sets();
        match sets.is_empty() {
            true => Ok(vec![read(&self.label, &*self.dataset)?]),
            false => sets.iter().map(|(label, set)| read(label, &**set)).collect(),
        }
    }

    /// Returns how other photos become squares, as the images of the set did. Images that are stored at one size are stretched.
    pub fn photos(&self) -> Resize {
        match self.dataset.resize() {
            Some(Resize::Stretch | Resize::None) => Resize::Stretch,
            Some(Resize::Pad) => Resize::Pad,
            Some(Resize::ShorterSideCrop) | None => Resize::ShorterSideCrop,
        }
    }

    /// Returns the names of all test sets in results.
    pub fn test_names(&self) -> Vec<String> {
        self.each_test_set(|label, _| Ok(label.to_string())).unwrap_or_default()
    }

    /// Reads the table of a config and records mistakes in the reader.
    pub fn of(root: &Reader) -> Option<DataSpec> {
        let known: Vec<&str> = DATASETS.iter().map(|e| e.key).collect();
        let (key, reader) = root.one_of("data", &known)?;
        let mut data = DataSpec::read(&reader, DATASETS.iter().find(|e| e.key == key)?);
        reader.finish();
        // Where the set itself has a key `label`, of its column or ending, that key does not name the set.
        if data.label.is_empty() || data.dataset.resolved().contains_key("label") {
            data.label = data.dataset.label();
        }
        Some(data)
    }

    fn check(&self, reader: &Reader, entry: &Entry) {
        let (key, dataset) = (entry.key, &self.dataset);
        if self.cache.is_some() && dataset.resize().is_none() {
            reader
                .problem("cache", format!("{key} is read as it is stored, so there is nothing to keep; leave it out"));
        }
        let medium = dataset.medium();
        if self.augment.is_some() && medium != Medium::Images {
            reader.problem("augment", format!("{key} has {medium}, which have no random views; leave it out"));
        }
        let published = dataset.published();
        if self.validation == Validation::Published
            && !published.images.is_empty()
            && published.images_of(SplitName::Val).is_none()
        {
            reader.problem("validation", format!("{key} has no split `val` as it is set; give a share, say 0.1"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_photos_become_squares_as_the_images_of_the_set_did() {
        let of = |table: &str| DataSpec::alone(Tree::parse("x.toml", table).unwrap()).unwrap().photos();
        for (word, photos) in [
            ("stretch", Resize::Stretch),
            ("pad", Resize::Pad),
            ("shorter-side-crop", Resize::ShorterSideCrop),
            ("none", Resize::Stretch),
        ] {
            let table = format!("[data.image-folder]\nroot = \"x\"\nresize = \"{word}\"\n");
            assert_eq!(of(&table), photos, "{word}");
        }
        assert_eq!(of("[data.digits]\n"), Resize::ShorterSideCrop, "a set without the key");
    }
}
