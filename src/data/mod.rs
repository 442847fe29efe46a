//! Data sets: images as bytes, labels, official splits, groups, class names.
//! A data set is one file and one line in [`DATASETS`]; the list, the config parser and the
//! message for an unknown name read that slice. Nothing here knows of tensors or models.

pub mod augment;
mod cache;
mod camelyon17;
pub mod check;
mod cifar;
mod cifar10;
mod cifar100;
mod cifar100_c;
mod cifar10_c;
mod cifar_c;
pub mod class_folders;
mod columns;
pub mod corruptions;
mod decode;
mod digits;
mod domainnet;
mod fingerprint;
mod flowers102;
pub mod image_files;
mod image_folder;
mod image_folder_c;
mod imagenet;
mod images;
pub mod labels;
mod list;
mod mat;
mod npy;
pub mod order;
mod published;
mod stl10;
pub mod stream;
pub mod subset;
mod svhn;
#[cfg(test)]
mod testing;
mod tiny_imagenet;
pub mod versions;
mod vtab;
mod wordnet;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::Reader;

pub use augment::Augment;
pub use decode::{Decode, Interpolation, Resize};
pub use fingerprint::Fingerprint;
pub use images::{Files, Images, Packed};
pub use published::Published;
pub use subset::Subset;
pub use versions::Version;

/// Every data set of `[data.*]`, in the order in which they are listed.
pub static DATASETS: &[&Entry] = &[
    &cifar10::ENTRY,
    &cifar100::ENTRY,
    &stl10::ENTRY,
    &svhn::ENTRY,
    &flowers102::ENTRY,
    &camelyon17::ENTRY,
    &domainnet::ENTRY,
    &imagenet::ENTRY,
    &tiny_imagenet::ENTRY,
    &vtab::ENTRY,
    &list::ENTRY,
    &image_folder::ENTRY,
    &digits::ENTRY,
    &cifar10_c::ENTRY,
    &cifar100_c::ENTRY,
    &image_folder_c::ENTRY,
];

/// A line of the registry: how one kind of data set is named and made from its config table.
pub struct Entry {
    /// The name in `[data.<key>]` and in results.
    pub key: &'static str,
    /// One line for `bella list`.
    pub about: &'static str,
    /// Where the files come from, and where below `root` they have to lie.
    pub fetch: &'static str,
    /// Reads the table; mistakes are recorded in the reader, and no file is opened.
    pub read: fn(&mut Reader) -> Box<dyn Dataset>,
}

/// A configured data set. Files are touched only by [`Dataset::classes`] and [`Dataset::load`].
pub trait Dataset: Send + Sync {
    /// The registry key.
    fn key(&self) -> &'static str;

    /// Class names; the position is the label.
    ///
    /// # Errors
    /// Where the names come from files or folders that cannot be read.
    fn classes(&self) -> Result<Vec<String>>;

    /// Name of the set in results, unless the config gives one.
    fn label(&self) -> String {
        self.key().to_string()
    }

    /// Reads one official split; files of other splits need not exist.
    ///
    /// # Errors
    /// A split that the set does not have, missing or malformed files, a label out of range.
    fn load(&self, split: SplitName, request: &Request) -> Result<Split>;

    /// The splits that the set has.
    ///
    /// # Errors
    /// Where that is up to files which cannot be read.
    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(vec![SplitName::Train, SplitName::Test])
    }

    /// What the publisher says of the set; nothing for a user's own images.
    fn published(&self) -> Published {
        Published::default()
    }

    /// How its image files get the network's size; `None` for a set that is stored as pixels.
    fn resize(&self) -> Option<Resize> {
        None
    }

    /// Where the config names several test sets, which are evaluated one by one: the name of each, which is put behind the
    /// set's label, and the set with it alone. Else empty.
    fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        Vec::new()
    }

    /// The published corrupted versions that the config asks for, each a test set of its own; empty for a set with plain
    /// splits. A set has either versions or splits.
    ///
    /// # Errors
    /// All missing files or folders, in one message.
    fn versions(&self) -> Result<Vec<Version>> {
        Ok(Vec::new())
    }

    /// Reads one of [`Dataset::versions`].
    ///
    /// # Errors
    /// A version that the set does not have, missing or malformed files, a label out of range.
    fn load_version(&self, version: &Version, _request: &Request) -> Result<Split> {
        bail!("{} has no corrupted versions, so no `{version}`; bella makes its own with --corrupt", self.key())
    }

    /// The config with its defaults filled in, as stored with the results. `root` is its only path.
    fn resolved(&self) -> toml::Table;
}

/// An official part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitName {
    /// Images to train on.
    Train,
    /// A published validation part (most sets have none: see [`order::stratified_validation_split`]).
    Val,
    /// Images to report on.
    Test,
}

impl SplitName {
    /// All names, in the order of their use.
    pub const ALL: [SplitName; 3] = [SplitName::Train, SplitName::Val, SplitName::Test];

    /// The name as configs, files and messages write it.
    pub fn as_str(self) -> &'static str {
        match self {
            SplitName::Train => "train",
            SplitName::Val => "val",
            SplitName::Test => "test",
        }
    }
}

impl fmt::Display for SplitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SplitName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<SplitName> {
        SplitName::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| anyhow::anyhow!("unknown split `{text}`; known: train, val, test"))
    }
}

/// What the caller wants of the images, and the means it grants.
pub struct Request<'a> {
    /// Side in pixels of images that are decoded from files. Sets of one native size (CIFAR,
    /// digits) keep theirs: the caller resizes on its device.
    pub image_size: usize,
    /// The filter by which decoded images get their size.
    pub interpolation: Interpolation,
    /// The folder of decoded images that are kept on disk, if they are; never changes a result.
    pub cache: Option<&'a Path>,
    /// Image files are decoded once into memory where all of them fit in this many bytes.
    pub memory_bytes: usize,
    /// Threads that decode; never changes a result.
    pub workers: usize,
    /// Called with (done, total) images while files are decoded, from any thread.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// One loaded split: N images with their labels.
#[derive(Clone, Debug)]
pub struct Split {
    /// The data set's key and the split, `cifar10/test`.
    pub name: String,
    /// The N images, `[N, 3, H, W]` bytes in memory or files to decode.
    pub images: Images,
    /// `[N]`, each below the number of classes.
    pub labels: Vec<u32>,
    /// What else the images belong to (hospital, slide), where the set says.
    pub groups: Option<Groups>,
    /// Files left out because they could not be decoded (`skip_corrupt = true`).
    pub corrupt_skipped: usize,
    /// The files that packed images were decoded from; `None` for a set that is stored as pixels.
    pub decoded_from: Option<Files>,
}

impl Split {
    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// SHA-256 of labels and images (of files: names and sizes): whether a resumed run sees what it was started with.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        self.labels.iter().for_each(|label| hash.update(label.to_le_bytes()));
        match &self.images {
            Images::Packed(packed) => hash.update(&packed.pixels),
            Images::Files(files) => files.paths.iter().for_each(|path| {
                hash.update(path.file_name().map_or(&[][..], |name| name.as_encoded_bytes()));
                hash.update(path.metadata().map_or(0, |meta| meta.len()).to_le_bytes());
            }),
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The same split with other versions of its images.
    pub fn with_images(&self, images: Images) -> Split {
        let (name, labels, groups) = (self.name.clone(), self.labels.clone(), self.groups.clone());
        let (corrupt_skipped, decoded_from) = (self.corrupt_skipped, self.decoded_from.clone());
        Split { name, images, labels, groups, corrupt_skipped, decoded_from }
    }

    /// The images at `indices`, in that order, as a split of its own.
    pub fn select(&self, indices: &[u32]) -> Split {
        let pick = |of: &[u32]| indices.iter().map(|&i| of[i as usize]).collect();
        Split {
            name: self.name.clone(),
            images: self.images.select(indices),
            labels: pick(&self.labels),
            groups: self.groups.as_ref().map(|groups| Groups { names: groups.names.clone(), of: pick(&groups.of) }),
            corrupt_skipped: self.corrupt_skipped,
            decoded_from: self.decoded_from.as_ref().map(|files| files.select(indices)),
        }
    }
}

/// A partition of the images beside the labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Group names; the position is the group.
    pub names: Vec<String>,
    /// `[N]`: the group of each image.
    pub of: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_described() {
        for (i, entry) in DATASETS.iter().enumerate() {
            assert!(DATASETS[..i].iter().all(|other| other.key != entry.key));
            assert!(!entry.about.is_empty() && entry.about.is_ascii());
        }
    }

    #[test]
    fn split_names_round_trip() {
        for name in SplitName::ALL {
            assert_eq!(name.to_string().parse::<SplitName>().unwrap(), name);
        }
        let error = "dev".parse::<SplitName>().unwrap_err().to_string();
        assert_eq!(error, "unknown split `dev`; known: train, val, test");
    }
}
