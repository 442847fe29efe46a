// tests/fixtures/data/medmnist was written by scripts/make_medmnist_fixtures.py: files that numpy saved, and what the package
// `medmnist` itself reads of them.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::*;
use crate::base::hash::hex;
use crate::data::testing::{error, fixture, load, mistakes, set};
use crate::schema::Choice;

const FIXTURES: [(&str, i64); 4] = [("pathmnist", 28), ("bloodmnist", 28), ("breastmnist", 28), ("dermamnist", 224)];

fn of(root: &Path, task: &str, size: i64, more: &str) -> Box<dyn Dataset> {
    set(&ENTRY, root, &format!("task = {task:?}\nsize = {size}\n{more}"))
}

fn pixels(split: &Split) -> Vec<u8> {
    let all: Vec<u32> = (0..split.len() as u32).collect();
    split.inputs.gather(&all).unwrap()
}

/// Gray and colour, 28 and 224 pixels, compressed or not: the images, labels and splits of the package.
#[test]
fn images_labels_and_splits_are_those_of_the_package() {
    let text = std::fs::read_to_string(fixture("medmnist/expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (task, size) in FIXTURES {
        let set = of(&fixture("medmnist"), task, size, "");
        for name in SplitName::ALL {
            let split = load(&*set, name).unwrap();
            let known = &expected[set.label()][name.word()];
            assert_eq!(known["sha256"], hex(Sha256::digest(pixels(&split))), "{task}/{name}");
            let labels: Vec<u32> = serde_json::from_value(known["labels"].clone()).unwrap();
            assert_eq!(split.labels, labels, "{task}/{name}");
        }
        let info = &expected[set.label()]["info"];
        assert_eq!(serde_json::to_value(set.classes().unwrap()).unwrap(), info["classes"]);
        let counts: Vec<usize> = SplitName::ALL.iter().map(|name| set.published().images_of(*name).unwrap()).collect();
        assert_eq!(serde_json::to_value(counts).unwrap(), info["counts"]);
    }
}

/// The numbers and the classes of all eleven are those of the package.
#[test]
fn every_task_is_as_the_package_states_it() {
    let text = std::fs::read_to_string(fixture("medmnist/expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = expected["all"].as_object().unwrap();
    assert_eq!(all.len(), 11);
    for (key, info) in all {
        let task = task(key).unwrap();
        assert_eq!(info["classes"], serde_json::to_value(task.classes).unwrap(), "{key}");
        assert_eq!(info["counts"], serde_json::to_value(task.counts).unwrap(), "{key}");
    }
}

#[test]
fn a_subset_is_a_part_of_the_same_images() {
    let whole = load(&*of(&fixture("medmnist"), "bloodmnist", 28, ""), SplitName::Train).unwrap();
    let some = load(&*of(&fixture("medmnist"), "bloodmnist", 28, "subset = 3"), SplitName::Train).unwrap();
    let kept = chosen(Some(Subset::Each(3)), SplitName::Train, &whole.labels).unwrap().unwrap();
    assert_eq!((pixels(&some), &some.labels), (pixels(&whole.select(&kept)), &whole.select(&kept).labels));
}

#[test]
fn other_files_and_settings_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let refused = |task: &str, size: i64| error(&*of(root.path(), task, size, ""), SplitName::Test);
    let text = refused("pathmnist", 64);
    assert!(text.contains("says what to fetch") && text.contains("pathmnist_64.npz: cannot open"), "{text}");
    std::fs::write(root.path().join("pathmnist.npz"), b"PK no zip").unwrap();
    assert!(refused("pathmnist", 28).contains("pathmnist.npz: not an .npz file: fetch it again"));
    let put = |name: &str, arrays: &[(&str, Vec<usize>, Vec<u8>)]| {
        let written = |(name, shape, bytes): &(&str, Vec<usize>, Vec<u8>)| Written {
            name: name.to_string(),
            shape: shape.clone(),
            bytes: bytes.clone(),
        };
        let arrays: Vec<_> = arrays.iter().map(written).collect();
        npz::write(&root.path().join(name), &arrays).unwrap();
    };
    let image = || vec![7; 28 * 28];
    put("pathmnist.npz", &[("x", vec![1], vec![1])]);
    let text = refused("pathmnist", 28);
    assert!(text.contains("pathmnist.npz: no array `test_labels`, only x"), "{text}");
    put("pathmnist.npz", &[("test_labels", vec![1, 1], vec![9]), ("test_images", vec![1, 28, 28], image())]);
    assert!(refused("pathmnist", 28).contains("test image 0 has label 9, but labels are 0 to 8"));
    put("pathmnist.npz", &[("test_labels", vec![1, 14], vec![0; 14])]);
    assert!(refused("pathmnist", 28).contains("test_labels has the shape [1, 14], but one label an image is [N, 1]"));
    put("pathmnist_64.npz", &[("test_labels", vec![1, 1], vec![2]), ("test_images", vec![1, 28, 28], image())]);
    let text = refused("pathmnist", 64);
    assert!(text.contains("[1, 28, 28], but 1 labels and data.medmnist.size = 64 need [1, 64, 64] or"), "{text}");
    put("pathmnist.npz", &[("test_labels", vec![1, 1], vec![2]), ("test_images", vec![1, 28, 28], vec![7; 99])]);
    assert!(refused("pathmnist", 28).contains("which are not those of its shape [1, 28, 28]: the file is damaged"));

    let whole = std::fs::read(fixture("medmnist/pathmnist.npz")).unwrap();
    for at in (0..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        std::fs::write(root.path().join("pathmnist.npz"), &damaged).unwrap();
        // What was changed is found by a checksum, or is a byte that nothing reads, such as a time.
        if let Ok(split) = load(&*of(root.path(), "pathmnist", 28, ""), SplitName::Test) {
            let good = load(&*of(&fixture("medmnist"), "pathmnist", 28, ""), SplitName::Test).unwrap();
            assert_eq!((pixels(&split), split.labels), (pixels(&good), good.labels), "byte {at}");
        }
        std::fs::write(root.path().join("pathmnist.npz"), &whole[..at]).unwrap();
        assert!(load(&*of(root.path(), "pathmnist", 28, ""), SplitName::Test).is_err());
    }
}

#[test]
fn wrong_names_and_sizes_are_told() {
    let wrong = |task: &str, more: &str| mistakes(&ENTRY, &format!("task = {task:?}\n{more}"));
    assert!(wrong("pathminst", "").contains("unknown data set; known: pathmnist, dermamnist, octmnist"));
    assert!(wrong("chestmnist", "").contains("chestmnist has several labels an image; known: "));
    assert!(wrong("organmnist3d", "").contains("volumes are not read"));
    assert!(wrong("pathmnist", "size = 32").contains("must be 28, 64, 128 or 224"));
    assert!(mistakes(&ENTRY, "").contains("task is required"));
}
