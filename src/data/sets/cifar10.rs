//! CIFAR-10 (Krizhevsky 2009), binary or Python version: 50,000 training images in five files, 10,000 test images.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::data::read::cifar::{self, Layout};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Published, Request, Split, SplitName, Subset};
use crate::hub::originals::{Original, Originals};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "cifar10",
    about: "CIFAR-10, binary or Python version: 10 classes, 32x32, official train and test",
    fetch: "cifar-10-binary.tar.gz or cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked: \
            ROOT/cifar-10-batches-bin/data_batch_1.bin, … or ROOT/cifar-10-batches-py/data_batch_1, …",
    originals: Originals::Files {
        files: &[Original::new(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        )],
        terms: "no licence is stated; its author asks to cite his report of 2009, Learning Multiple Layers of Features from Tiny Images",
    },
    read: |reader| Box::new(Cifar10::read(reader)),
    sample: Some(|reader| Box::new(Cifar10::read(reader))),
};

const LAYOUT: Layout = Layout { label_bytes: 1, label_at: 0, label_key: "labels", classes: 10 };
/// The folders of the binary and the Python version.
const FOLDERS: [&str; 2] = ["cifar-10-batches-bin", "cifar-10-batches-py"];
pub static CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

settings! {
    struct Cifar10 {
        root: PathBuf, because "the folder that holds cifar-10-batches-bin";
        /// Numbers of the training batches to use.
        batches: Vec<i64> = (1..=5).collect(), in 1..=5;
        subset: Option<Subset>, by Subset::read;
    } then check
}

impl Cifar10 {
    fn check(&self, reader: &Reader) {
        let mut distinct = self.batches.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < self.batches.len() {
            reader.problem("batches", "each training file may be named once");
        }
    }

    fn folder(&self) -> PathBuf {
        cifar::folder(&self.root, FOLDERS[0])
    }

    /// Returns the names of the files of a split, without their extension.
    fn stems(&self, split: SplitName) -> Vec<String> {
        match split {
            SplitName::Train => self.batches.iter().map(|i| format!("data_batch_{i}")).collect(),
            SplitName::Val => Vec::new(),
            SplitName::Test => vec!["test_batch".to_string()],
        }
    }
}

impl Dataset for Cifar10 {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        cifar::class_names(&self.folder().join("batches.meta.txt"), &CLASSES)
    }

    fn published(&self) -> Published {
        Published::new(10, &[(SplitName::Train, 10_000 * self.batches.len()), (SplitName::Test, 10_000)])
    }

    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        if split == SplitName::Val {
            bail!("cifar10 has no split `val`; set data.cifar10.validation, say to 0.2");
        }
        let files: Vec<PathBuf> = self.stems(split).iter().map(|stem| cifar::file(&self.root, FOLDERS, stem)).collect();
        cifar::load(self.key(), &files, &LAYOUT, split, self.subset)
    }
}

impl SmallSet for Cifar10 {
    fn side(&self) -> u32 {
        32
    }

    /// Writes the binary version of the training files that are used, and of the test file.
    fn write(&self, sizes: &Sizes) -> Result<()> {
        for split in [SplitName::Train, SplitName::Test] {
            let (stems, count) = (self.stems(split), sizes.of(split));
            for (place, stem) in stems.iter().enumerate() {
                let images = count * place / stems.len()..count * (place + 1) / stems.len();
                let file = self.root.join(FOLDERS[0]).join(format!("{stem}.bin"));
                cifar::write_made_up(&file, images, |i| vec![sizes.label(i) as u8])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
