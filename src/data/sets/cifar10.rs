//! CIFAR-10 (Krizhevsky 2009), binary or Python version: 50,000 training images in five files, 10,000 test images.

use std::path::PathBuf;

use anyhow::Result;

use crate::data::read::cifar::{self, Layout};
use crate::data::{Dataset, Entry, Published, Request, Split, SplitName, Subset};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "cifar10",
    about: "CIFAR-10, binary or Python version: 10 classes, 32x32, official train and test",
    fetch: "cifar-10-binary.tar.gz or cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked: \
            ROOT/cifar-10-batches-bin/data_batch_1.bin, … or ROOT/cifar-10-batches-py/data_batch_1, …",
    read: |reader| Box::new(Cifar10::read(reader)),
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
        let files = match split {
            SplitName::Train => self.batches.iter().map(|i| format!("data_batch_{i}")).collect(),
            SplitName::Test => vec!["test_batch".to_string()],
            SplitName::Val => anyhow::bail!("cifar10 has no split `val`; set data.cifar10.validation, say to 0.2"),
        };
        let files: Vec<PathBuf> = files.iter().map(|file| cifar::file(&self.root, FOLDERS, file)).collect();
        cifar::load(self.key(), &files, &LAYOUT, split, self.subset)
    }
}

#[cfg(test)]
mod tests;
