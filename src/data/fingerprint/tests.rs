use std::fs;
use std::path::Path;

use super::*;
use crate::data::testing::{REQUEST, put, set};
use crate::data::{DATASETS, Dataset, Packed, Request, SplitName};

fn folder(root: &Path, extra: &str) -> Box<dyn Dataset> {
    set(DATASETS.iter().find(|entry| entry.key == "image-folder").unwrap(), root, extra)
}

fn load(set: &dyn Dataset, memory_bytes: usize) -> Split {
    set.load(SplitName::Test, &Request { memory_bytes, ..REQUEST }).unwrap()
}

fn of(root: &Path, extra: &str) -> Fingerprint {
    Fingerprint::of(&load(&*folder(root, extra), 0)).unwrap()
}

/// Writes two bitmaps, whose file sizes do not depend on their pixels.
fn two_images(root: &Path, gray: u8) {
    put(root, "ant/a.bmp", gray);
    put(root, "bee/a.bmp", 7);
}

#[test]
fn neither_the_folder_nor_the_way_of_reading_matters() {
    let (place, moved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    two_images(place.path(), 1);
    two_images(&moved.path().join("elsewhere"), 1);
    let set = folder(place.path(), "");
    let (packed, files) = (load(&*set, usize::MAX), load(&*set, 0));
    assert!(matches!(packed.inputs, Inputs::Packed(_)) && matches!(files.inputs, Inputs::Files(_)));
    let fingerprint = Fingerprint::of(&packed).unwrap();
    assert_eq!(fingerprint, Fingerprint::of(&files).unwrap());
    assert_eq!(fingerprint, of(&moved.path().join("elsewhere"), ""));
    assert_eq!(Fingerprint::of(&packed.select(&[1])).unwrap(), Fingerprint::of(&files.select(&[1])).unwrap());
    assert!(Fingerprint::of(&packed.select(&[1])).unwrap() != fingerprint);
    let larger = set.load(SplitName::Test, &Request { image_size: 8, ..REQUEST }).unwrap();
    assert_eq!(fingerprint, Fingerprint::of(&larger).unwrap(), "the size is the checkpoint's");
}

#[test]
fn contents_names_labels_groups_and_resizing_matter() {
    let place = tempfile::tempdir().unwrap();
    let root = |name: &str| place.path().join(name);
    two_images(&root("a"), 1);
    two_images(&root("content"), 2);
    let base = of(&root("a"), "");
    assert!(base != of(&root("content"), ""), "the files have equal names and sizes");
    assert!(base != of(&root("a"), "resize = \"stretch\""));
    assert!(base != of(&root("a"), "classes = [\"bee\", \"ant\"]"), "other labels");
    fs::rename(root("a").join("ant/a.bmp"), root("a").join("ant/b.bmp")).unwrap();
    assert!(base != of(&root("a"), ""));
    let mut grouped = load(&*folder(&root("a"), ""), 0);
    let plain = Fingerprint::of(&grouped).unwrap();
    grouped.groups = Some(Groups { names: vec!["x".into()], of: vec![0, 0] });
    assert!(Fingerprint::of(&grouped).unwrap() != plain);
}

// A change in the middle of a file of 30 KiB changes the hash, and a missing file is named.
#[test]
fn long_files_are_read_in_blocks() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("long");
    let mut bytes = vec![0u8; 30 << 10];
    fs::write(&path, &bytes).unwrap();
    let before = of_file(&path, false).unwrap();
    assert_eq!(before, of_file(&path, false).unwrap());
    bytes[15 << 10] = 1;
    fs::write(&path, &bytes).unwrap();
    assert!(before != of_file(&path, false).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(format!("{:#}", of_file(&path, false).unwrap_err()).contains("long: cannot read"));
}

#[test]
fn pixels_are_their_own_identity() {
    let split = |gray: u8, width: usize| Split {
        name: "x/test".into(),
        inputs: Inputs::Packed(Packed { pixels: vec![gray; 24], height: 8 / width, width }),
        labels: vec![0],
        groups: None,
        corrupt_skipped: 0,
        decoded_from: None,
    };
    let base = Fingerprint::of(&split(1, 2)).unwrap();
    assert_eq!(base, Fingerprint::of(&split(1, 2)).unwrap());
    assert!(base != Fingerprint::of(&split(2, 2)).unwrap() && base != Fingerprint::of(&split(1, 4)).unwrap());
    assert_eq!(base.short().len(), SHOWN);
    let other = Fingerprint::of(&split(2, 2)).unwrap();
    let (base, other) = (base.short(), other.short());
    let of_all = |parts: [&str; 2]| Fingerprint::of_all(parts.into_iter());
    assert!(of_all([&base, &other]) != of_all([&other, &base]));
}
