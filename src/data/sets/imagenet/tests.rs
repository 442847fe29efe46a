use std::path::Path;

use super::*;
use crate::data::testing::{error, fixture, grays, load, put, set, write};

const WNIDS: [&str; 3] = ["n01440764", "n02100735", "n02119789"];

fn train(root: &Path) {
    for (i, wnid) in WNIDS.iter().enumerate() {
        put(root, &format!("train/{wnid}/{wnid}_1.JPEG"), i as u8);
    }
}

/// Returns three images in val without class folders.
fn flat() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    (1..=3).for_each(|i| put(root.path(), &format!("val/ILSVRC2012_val_{i:08}.JPEG"), 10 + i));
    root
}

fn of(root: &Path, extra: &str) -> Box<dyn Dataset> {
    set(&ENTRY, root, extra)
}

#[test]
fn class_folders() {
    let root = tempfile::tempdir().unwrap();
    train(root.path());
    put(root.path(), "val/n02119789/v.JPEG", 9);
    write(root.path(), "names.txt", "n01440764 tench, Tinca tinca\nn02100735 English setter\nn02119789 kit fox\n");
    let set = of(root.path(), "words = \"names.txt\"");
    assert_eq!(set.classes().unwrap(), ["tench", "English setter", "kit fox"]);
    assert_eq!(load(&*set, SplitName::Train).unwrap().labels, [0, 1, 2]);
    let test = load(&*set, SplitName::Test).unwrap();
    assert_eq!((grays(&test), &test.labels[..]), (vec![9], &[2][..]));
    assert!(error(&*set, SplitName::Val).contains("val is the test split"));
    std::fs::create_dir(root.path().join("val/n09999999")).unwrap();
    assert!(error(&*set, SplitName::Test).contains("n09999999: not one of the 3 classes"));
}

#[test]
fn labels_of_a_flat_val_in_all_forms() {
    let root = flat();
    let [a, b, c] = [1, 2, 3].map(|i| format!("ILSVRC2012_val_{i:08}"));
    write(root.path(), "devkit/truth.txt", "3\n1\n2\n");
    std::fs::copy(fixture("meta.mat"), root.path().join("devkit/meta.mat")).unwrap();
    let boxes = format!(
        "ImageId,PredictionString\n{c},n02100735 1 2 3 4 \n{a},n01440764 1 2 3 4 n01440764 5 6 7 8\n{b},n02119789 0 0 1 1\n"
    );
    write(root.path(), "solution.csv", &boxes);
    write(root.path(), "val.txt", &format!("{a}.JPEG 0\n{b}.JPEG 2\n{c}.JPEG 1\n"));
    write(root.path(), "wnids.txt", &format!("{a}.JPEG n01440764\n{b}.JPEG n02119789\n{c}.JPEG n02100735\n"));
    let found = |file: &str| {
        let set = of(root.path(), &format!("ground_truth = {file:?}"));
        let split = load(&*set, SplitName::Test).unwrap();
        let mut pairs: Vec<_> = grays(&split).into_iter().zip(split.labels).collect();
        pairs.sort_unstable();
        (set.classes().unwrap(), pairs)
    };
    let expected = (WNIDS.map(str::to_string).to_vec(), vec![(11, 0), (12, 2), (13, 1)]);
    for file in ["devkit/truth.txt", "solution.csv", "wnids.txt"] {
        assert_eq!(found(file), expected, "{file}");
    }
    let text = error(&*of(root.path(), "ground_truth = \"val.txt\""), SplitName::Test);
    assert!(text.contains("labels without wnids, and there is no training folder"), "{text}");
    train(root.path());
    assert_eq!(found("val.txt"), expected);
}

#[test]
fn a_flat_val_needs_labels_that_fit() {
    let root = flat();
    train(root.path());
    let text = error(&*of(root.path(), ""), SplitName::Test);
    assert!(text.contains("no class folders, so data.imagenet.ground_truth has to name a file"), "{text}");
    let refused = |text: &str| {
        write(root.path(), "t.txt", text);
        error(&*of(root.path(), "ground_truth = \"t.txt\""), SplitName::Test)
    };
    assert!(refused("a.JPEG 3\n").contains("t.txt: a.JPEG is of the class 3, which is none of the 3 classes"));
    assert!(refused("a.JPEG 1\n").contains("a.JPEG: No such file"));
    assert!(refused("3\n1\n").contains("meta.mat of the devkit explains"));
    assert!(refused("nothing\n").contains("t.txt:1: `nothing`: expected ILSVRC2012_validation_ground_truth.txt"));
    assert!(refused("ImageId,PredictionString\nval_1\n").contains("t.txt:2: `val_1` is not `<image>,<wnid> <box>`"));
    assert!(refused("").contains("t.txt: is empty"));
}
