use super::*;
use crate::data::testing::{error, grays, load, put, set, write};

fn tiny() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let at = |file: &str| format!("tiny-imagenet-200/{file}");
    for (file, gray) in [("n02/images/n02_0.JPEG", 1), ("n01/images/n01_1.JPEG", 2), ("n01/images/n01_0.JPEG", 3)] {
        put(root.path(), &at(&format!("train/{file}")), gray);
    }
    write(root.path(), &at("train/n01/n01_boxes.txt"), "n01_0.JPEG\t0\t0\t62\t62\n");
    put(root.path(), &at("val/images/val_0.JPEG"), 4);
    put(root.path(), &at("val/images/val_1.JPEG"), 5);
    write(
        root.path(),
        &at("val/val_annotations.txt"),
        "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t52\t55\t57\t59\n",
    );
    write(root.path(), &at("wnids.txt"), "n02\nn01\n");
    write(root.path(), &at("words.txt"), "n01\tgoldfish, Carassius auratus\nn02\ttailed frog, bell toad\nn03\tfox\n");
    root
}

#[test]
fn val_is_the_test_split() {
    let root = tiny();
    let set = set(&ENTRY, root.path(), "");
    assert_eq!(set.classes().unwrap(), ["n01", "n02"]);
    let of = |split| load(&*set, split).map(|split| (grays(&split), split.labels)).unwrap();
    assert_eq!(of(SplitName::Train), (vec![3, 2, 1], vec![0, 0, 1]));
    assert_eq!(of(SplitName::Test), (vec![4, 5], vec![1, 0]));
    assert!(error(&*set, SplitName::Val).contains("val is the test split"));
    let named = crate::data::testing::set(&ENTRY, root.path(), "words = \"words.txt\"");
    assert_eq!(named.classes().unwrap(), ["goldfish", "tailed frog"]);
}

#[test]
fn images_without_annotations_are_no_classes() {
    let root = tiny();
    std::fs::remove_file(root.path().join("tiny-imagenet-200/val/val_annotations.txt")).unwrap();
    assert!(error(&*set(&ENTRY, root.path(), ""), SplitName::Test).contains("val_annotations.txt: is missing"));
}

#[test]
fn a_val_sorted_into_class_folders_works_too() {
    let root = tiny();
    let folder = root.path().join("tiny-imagenet-200");
    std::fs::remove_dir_all(folder.join("val")).unwrap();
    put(&folder, "val/n02/a.JPEG", 7);
    let set = set(&ENTRY, root.path(), "");
    assert_eq!(load(&*set, SplitName::Test).unwrap().labels, [1]);
    write(&folder, "val/val_annotations.txt", "a.JPEG\tn09\t0\t0\t1\t1\n");
    assert!(error(&*set, SplitName::Test).contains("val_annotations.txt:1: `n09` is none of the 2 classes"));
    write(&folder, "wnids.txt", "n01\nn01\n");
    assert!(set.classes().unwrap_err().to_string().contains("wnids.txt: n01 comes twice"));
}
