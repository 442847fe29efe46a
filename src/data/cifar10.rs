//! CIFAR-10 (Krizhevsky 2009), binary version: 50,000 training images in five files, 10,000 test images.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::cifar::{self, Layout};
use super::{Dataset, Entry, Request, Split, SplitName, Subset};
use crate::config::Reader;

pub static ENTRY: Entry =
    Entry { key: "cifar10", about: "CIFAR-10, binary version: 10 classes, 32x32, official train and test", read };

const LAYOUT: Layout = Layout { label_bytes: 1, label_at: 0, classes: 10 };
pub(super) static CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

#[derive(Serialize)]
struct Cifar10 {
    root: PathBuf,
    /// Which of the five training files are used, in this order.
    batches: Vec<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subset: Option<Subset>,
}

fn read(reader: &mut Reader) -> Box<dyn Dataset> {
    let root = reader.path("root").required_because("the folder that holds cifar-10-batches-bin");
    let batches = reader.integers("batches", 1..=5).or_else(|| (1..=5).collect());
    let mut distinct = batches.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() < batches.len() {
        reader.problem("batches", "each training file may be named once");
    }
    Box::new(Cifar10 { root, batches, subset: Subset::read(reader) })
}

impl Cifar10 {
    fn folder(&self) -> PathBuf {
        cifar::folder(&self.root, "cifar-10-batches-bin")
    }
}

impl Dataset for Cifar10 {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        cifar::class_names(&self.folder().join("batches.meta.txt"), &CLASSES)
    }

    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        let files = match split {
            SplitName::Train => self.batches.iter().map(|i| format!("data_batch_{i}.bin")).collect(),
            SplitName::Test => vec!["test_batch.bin".to_string()],
            SplitName::Val => anyhow::bail!("cifar10 has no split `val`; set data.cifar10.validation, say to 0.2"),
        };
        let files: Vec<PathBuf> = files.iter().map(|file| self.folder().join(file)).collect();
        cifar::load(self.key(), &files, &LAYOUT, split, self.subset)
    }

    fn resolved(&self) -> toml::Table {
        crate::config::table(self)
    }
}

#[cfg(test)]
mod tests;
