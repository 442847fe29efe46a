use super::*;
use crate::data::testing::{REQUEST, put, set, write};
use crate::data::{DATASETS, Entry};

fn entry(key: &str) -> &'static Entry {
    DATASETS.iter().find(|entry| entry.key == key).unwrap()
}

fn scope(decoding: Decoding, extent: Extent) -> Scope {
    Scope { split: None, decoding, extent }
}

fn two_splits() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, gray) in [("train/ant/a.png", 1), ("train/ant/b.png", 2), ("train/bee/c.png", 3), ("test/ant/d.png", 4)]
    {
        put(root.path(), file, gray);
    }
    root
}

#[test]
fn counts_of_a_good_set() {
    let root = two_splits();
    let set = set(entry("image-folder"), root.path(), "");
    let found = check(&*set, &scope(Decoding::All, Extent::Whole), &REQUEST);
    assert!(found.faults.is_empty(), "{:?}", found.faults);
    assert_eq!((found.classes, found.published_classes, found.parts.len()), (Some(2), None, 2));
    let train = &found.parts[0];
    assert_eq!((train.name.as_str(), train.images, train.classes, train.per_class), ("train", 3, 2, (1, 2)));
    let only = Scope { split: Some(SplitName::Test), ..scope(Decoding::Skip, Extent::Whole) };
    assert_eq!(check(&*set, &only, &REQUEST).parts.len(), 1);
    let only = Scope { split: Some(SplitName::Val), ..only };
    assert_eq!(check(&*set, &only, &REQUEST).faults, ["there is nothing to count: no such split"]);
}

#[test]
fn every_bad_file_is_named_once_decoded() {
    let root = two_splits();
    write(root.path(), "train/ant/a.png", "no image");
    write(root.path(), "train/bee/c.png", "nor this");
    let set = set(entry("image-folder"), root.path(), "");
    assert!(check(&*set, &scope(Decoding::Skip, Extent::Whole), &REQUEST).faults.is_empty());
    let faults = check(&*set, &scope(Decoding::All, Extent::Whole), &REQUEST).faults;
    assert_eq!(faults.len(), 2);
    assert!(
        faults[0].starts_with("train: ") && faults[0].contains("a.png") && faults[1].contains("c.png"),
        "{faults:?}"
    );
    write(root.path(), "test/ant/d.png", "");
    let faults = check(&*set, &scope(Decoding::Skip, Extent::Whole), &REQUEST).faults;
    assert!(faults.len() == 1 && faults[0].contains("d.png is empty"), "{faults:?}");
}

#[test]
fn published_numbers_bind_a_whole_set_only() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("test_batch.bin"), vec![1u8; 3073 * 4]).unwrap();
    let set = set(entry("cifar10"), root.path(), "");
    let whole = check(&*set, &scope(Decoding::Skip, Extent::Whole), &REQUEST);
    assert_eq!(whole.faults.len(), 2, "{:?}", whole.faults);
    assert!(whole.faults[0].contains("data_batch_1.bin: cannot read"));
    assert_eq!(whole.faults[1], "test: 4 images, but 10000 are published");
    let part = Scope { split: Some(SplitName::Test), ..scope(Decoding::Skip, Extent::Part) };
    let part = check(&*set, &part, &REQUEST);
    assert!(part.faults.is_empty() && part.parts[0].published == Some(10_000), "{part:?}");
}

#[test]
fn a_published_split_without_images_is_a_fault() {
    let root = tempfile::tempdir().unwrap();
    let stem = "patient_004_node_4";
    put(root.path(), &format!("patches/{stem}/patch_{stem}_x_1_y_2.png"), 1);
    write(root.path(), "metadata.csv", "patient,node,x_coord,y_coord,tumor,slide,center,split\n004,4,1,2,1,10,0,0\n");
    let set = set(entry("camelyon17"), root.path(), "");
    let faults = check(&*set, &scope(Decoding::All, Extent::Whole), &REQUEST).faults;
    let expected = [
        "train: 1 images, but 302436 are published",
        "val: no image, but 34904 are published",
        "test: no image, but 85054 are published",
    ];
    assert_eq!(faults, expected);
    let part = check(&*set, &scope(Decoding::All, Extent::Part), &REQUEST);
    assert!(part.faults.is_empty() && part.parts[0].groups == Some(1));
}
