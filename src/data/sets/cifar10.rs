//! CIFAR-10 (Krizhevsky 2009), binary or Python version: 50,000 training images in five files, 10,000 test images.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

use crate::data::read::cifar::{self, Layout};
use crate::data::read::tables::{Numbers, PackedSplit};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "cifar10",
    about: "CIFAR-10, binary or Python version: 10 classes, 32x32, official train and test",
    fetch: "cifar-10-binary.tar.gz or cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked: \
            ROOT/cifar-10-batches-bin/data_batch_1.bin, … or ROOT/cifar-10-batches-py/data_batch_1, …",
    marks: &["cifar-10-batches-bin", "cifar-10-batches-py", "data_batch_1.bin", "data_batch_1"],
    originals: Originals::Files {
        files: &[Original::new(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        )],
        terms: "no licence is stated; its author asks to cite his report of 2009, Learning Multiple Layers of Features from Tiny Images",
    },
    hub: Some(Hub { repository: "uoft-cs/cifar10", config: "plain_text", splits: &[], image: "img", label: "label" }),
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
        root: DataRoot, because "the folder that holds cifar-10-batches-bin";
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

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        if split == SplitName::Val {
            bail!("cifar10 has no split `val`; set data.cifar10.validation, say to 0.2");
        }
        let classes = CLASSES.map(String::from);
        let (root, subset) = (&*self.root, self.subset);
        let asked = PackedSplit { key: ENTRY.key, root, split, subset, classes: Numbers::Named(&classes), side: 32 };
        if let Some(split) = ENTRY.hub()?.packed(asked, request)? {
            ensure!(
                self.batches.len() == 5,
                "data.cifar10.batches: {} has the Hub's table, which is not divided into batches: leave it out",
                self.root.display()
            );
            return Ok(split);
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
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::testing::{self, REQUEST};
    use crate::schema::Tree;

    /// Writes `count` records. Record i has the label i mod 10, and all its pixels are `first + i`.
    fn write(path: &Path, count: u8, first: u8) {
        cifar::write(path, (0..count).map(|i| (vec![i % 10], vec![first + i; 3072]))).unwrap();
    }

    fn set(root: &Path, extra: &str) -> Box<dyn Dataset> {
        testing::set(&ENTRY, root, extra)
    }

    fn load(set: &dyn Dataset, split: SplitName) -> Result<Split> {
        set.load(split, &Request { image_size: 224, workers: 1, ..REQUEST })
    }

    #[test]
    fn chosen_batches_are_read_in_order() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cifar-10-batches-bin");
        std::fs::create_dir(&folder).unwrap();
        write(&folder.join("data_batch_2.bin"), 12, 0);
        write(&folder.join("data_batch_4.bin"), 3, 100);
        let set = set(root.path(), "batches = [4, 2]");
        let split = load(&*set, SplitName::Train).unwrap();
        assert_eq!(split.name, "cifar10/train");
        assert_eq!(split.labels, [0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        let first_pixels: Vec<u8> =
            split.inputs.gather(&[0, 2, 3, 14]).unwrap().chunks(3072).map(|image| image[0]).collect();
        assert_eq!(first_pixels, [100, 102, 0, 11]);
        assert_eq!(set.classes().unwrap()[9], "truck");
        assert!(load(&*set, SplitName::Test).unwrap_err().to_string().contains("test_batch.bin: cannot read"));
    }

    #[test]
    fn subset_and_names_of_the_folder_itself() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("test_batch.bin"), 30, 0);
        std::fs::write(root.path().join("batches.meta.txt"), "a\nb\n\n").unwrap();
        let set = set(root.path(), "subset = { test = 20, train = 5 }");
        assert_eq!(load(&*set, SplitName::Test).unwrap().labels.len(), 20);
        assert!(set.classes().unwrap_err().to_string().contains("2 class names, expected 10"));
        assert_eq!(set.resolved()["subset"]["test"].as_integer(), Some(20));
    }

    #[test]
    fn broken_files_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("test_batch.bin");
        let set = set(root.path(), "");
        let error = |bytes: Vec<u8>| {
            std::fs::write(&file, bytes).unwrap();
            load(&*set, SplitName::Test).unwrap_err().to_string()
        };
        let cut = error(vec![0; 3072]);
        assert!(cut.ends_with(
            "test_batch.bin: 3072 bytes are no whole number of records of 3073 bytes; fetch the binary version again"
        ));
        assert!(error(Vec::new()).contains("0 bytes"));
        let mut bytes = vec![0; 2 * 3073];
        bytes[3073] = 10;
        assert!(error(bytes).contains("record 1 has label 10, but there are 10 classes"));
    }

    #[test]
    fn config_mistakes_are_reported() {
        let tree = Tree::parse("test.toml", "batches = [1, 6, 1]\nsubset = { test = 0, dev = 1 }").unwrap();
        let reader = Reader::root(&tree);
        let set = (ENTRY.read)(&reader);
        let problems = reader.close(set).err().unwrap().to_string();
        for part in ["root is required", "batches[1] = 6", "subset.test = 0", "subset.dev = 1: unknown key"] {
            assert!(problems.contains(part), "{part} not in: {problems}");
        }
    }
}
