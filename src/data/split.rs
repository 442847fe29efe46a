//! An official part of a data set, loaded: its inputs, labels and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::images::Files;
use super::inputs::Inputs;
use crate::base::hash::hex;
use crate::schema::words;

words! {
    /// An official part of a data set.
    pub enum SplitName {
        /// Images to train on.
        Train = "train",
        /// Published images to validate on. Most sets have none, and hold training images out instead.
        Val = "val",
        /// Images to report on.
        Test = "test",
    }
}

impl SplitName {
    /// All names in the order of their use.
    pub const ALL: [SplitName; 3] = [SplitName::Train, SplitName::Val, SplitName::Test];

    /// Returns the names by which users call the split in files and folders, in the order of the search: the word itself first.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            SplitName::Train => &["train"],
            SplitName::Val => &["val", "validation", "valid", "dev"],
            SplitName::Test => &["test"],
        }
    }
}

/// One loaded split: N inputs with their labels.
#[derive(Clone, Debug)]
pub struct Split {
    /// The key of the data set and the split, such as `cifar10/test`.
    pub name: String,
    /// The N inputs: bytes `[N, 3, H, W]` in memory, files to decode, or texts.
    pub inputs: Inputs,
    /// The labels, `[N]`, each below the number of classes; all are 0 where numbers are learnt.
    pub labels: Vec<u32>,
    /// The numbers that are learnt in place of classes, `[N]`, all finite.
    pub numbers: Option<Vec<f64>>,
    /// The groups (hospital, slide) that the images belong to, if the set has groups.
    pub groups: Option<Groups>,
    /// The files that were left out because they could not be decoded (`skip_corrupt = true`), if there were any.
    pub corrupt: Option<Corrupt>,
    /// The files from which packed images were decoded, those of questions included. `None` for a set that is stored as pixels.
    pub decoded_from: Option<Files>,
}

/// Files that a split lists and does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Their number.
    pub count: usize,
    /// The hash of the split with them, as [`Split::listing`] returns it.
    pub listing: String,
}

impl Split {
    /// Takes inputs with the labels of classes, as a set stores them.
    pub fn new(name: impl Into<String>, inputs: Inputs, labels: Vec<u32>) -> Split {
        let (name, numbers, groups, corrupt, decoded_from) = (name.into(), None, None, None, None);
        Split { name, inputs, labels, numbers, groups, corrupt, decoded_from }
    }

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the files of the images: one for each sample, or of questions one for each image that they are about. `None` for a set
    /// that is no set of files.
    pub fn files(&self) -> Option<&Files> {
        self.decoded_from.as_ref().or_else(|| self.inputs.files())
    }

    /// Returns the file of a sample, of a question that of its image; or, where the split is no set of files, its name with the place of
    /// the sample, counted from 0.
    pub fn sample_name(&self, at: usize) -> PathBuf {
        let image = match &self.inputs {
            Inputs::Questions(questions) => questions.image_of[at] as usize,
            _ => at,
        };
        self.files().map_or_else(|| format!("{}:{at}", self.name).into(), |files| files.paths[image].clone())
    }

    /// Returns the same split, whose samples have these numbers in place of classes.
    pub fn with_numbers(self, numbers: Vec<f64>) -> Split {
        Split { numbers: Some(numbers), ..self }
    }

    /// Returns the SHA-256 hash of labels and images (for files: of names and sizes; for questions: of the texts and of the
    /// numbers of questions and images). It shows whether a resumed run
    /// has the images that it was started with.
    pub fn fingerprint(&self) -> String {
        self.hash_with(|take| self.inputs.describe(take))
    }

    /// Returns the same hash of the samples as their files list them, whether or not images were decoded and damaged ones left out: images
    /// of files count by the names and sizes of these. A part of a split that lacks damaged images has the hash of the whole.
    pub fn listing(&self) -> String {
        match (&self.corrupt, &self.decoded_from) {
            (Some(corrupt), _) => corrupt.listing.clone(),
            (None, Some(files)) if matches!(self.inputs, Inputs::Packed(_)) => {
                self.hash_with(|take| files.describe(take))
            }
            (None, _) => self.fingerprint(),
        }
    }

    /// Returns the hash of the labels or numbers, and of what `describe` hands over of the inputs.
    fn hash_with(&self, describe: impl Fn(&mut dyn FnMut(&[u8]))) -> String {
        let mut hash = Sha256::new();
        self.labels.iter().for_each(|label| hash.update(label.to_le_bytes()));
        self.numbers.iter().flatten().for_each(|number| hash.update(number.to_le_bytes()));
        describe(&mut |bytes| hash.update(bytes));
        hex(hash.finalize())
    }

    /// Returns the same split with other versions of its images.
    pub fn with_inputs(&self, inputs: Inputs) -> Split {
        let (name, labels, groups) = (self.name.clone(), self.labels.clone(), self.groups.clone());
        let (corrupt, decoded_from) = (self.corrupt.clone(), self.decoded_from.clone());
        Split { name, inputs, labels, numbers: self.numbers.clone(), groups, corrupt, decoded_from }
    }

    /// Returns the images at `indices`, in that order, as a split of its own.
    pub fn select(&self, indices: &[u32]) -> Split {
        let pick = |of: &[u32]| indices.iter().map(|&i| of[i as usize]).collect();
        Split {
            name: self.name.clone(),
            inputs: self.inputs.select(indices),
            labels: pick(&self.labels),
            numbers: self.numbers.as_ref().map(|numbers| indices.iter().map(|&i| numbers[i as usize]).collect()),
            groups: self.groups.as_ref().map(|groups| Groups { names: groups.names.clone(), of: pick(&groups.of) }),
            corrupt: self.corrupt.clone(),
            decoded_from: self.decoded_from.as_ref().map(|files| match &self.inputs {
                // A part of the questions keeps all images.
                Inputs::Questions(_) => files.clone(),
                _ => files.select(indices),
            }),
        }
    }
}

/// A partition of the images, in addition to the labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The names of the groups. The position of a name is its group.
    pub names: Vec<String>,
    /// The group of each image, `[N]`.
    pub of: Vec<u32>,
}

impl Groups {
    /// Returns the groups of samples, each of which belongs to what is named here; the groups are in the order of these names or numbers.
    pub fn of<N: Ord + ToString>(each: &[N]) -> Groups {
        let names: BTreeSet<&N> = each.iter().collect();
        let place: BTreeMap<&N, u32> = names.iter().copied().zip(0..).collect();
        Groups {
            names: names.iter().map(|name| name.to_string()).collect(),
            of: each.iter().map(|name| place[name]).collect(),
        }
    }

    /// Returns the same groups, with a word before each name.
    pub fn called(self, word: &str) -> Groups {
        Groups { names: self.names.iter().map(|name| format!("{word} {name}")).collect(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_names_round_trip() {
        for name in SplitName::ALL {
            assert_eq!(name.to_string().parse::<SplitName>().unwrap(), name);
        }
        let error = "dev".parse::<SplitName>().unwrap_err().to_string();
        assert_eq!(error, "unknown word `dev`; known: train, val, test");
    }
}
