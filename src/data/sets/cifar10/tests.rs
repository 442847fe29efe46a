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
