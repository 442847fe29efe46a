use super::*;
use crate::data::testing::{self, REQUEST};
use crate::schema::Tree;

/// Returns five images with `pixels[i] = 7 i mod 251`, labelled airplane, car, monkey, truck, bird.
fn binary() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let pixels: Vec<u8> = (0..5 * PIXELS).map(|i| (i * 7 % 251) as u8).collect();
    std::fs::write(root.path().join("test_X.bin"), pixels).unwrap();
    std::fs::write(root.path().join("test_y.bin"), [1, 3, 8, 10, 2]).unwrap();
    root
}

fn set(root: &Path, extra: &str) -> Box<dyn Dataset> {
    testing::set(&ENTRY, root, extra)
}

fn load(set: &dyn Dataset, split: SplitName) -> Result<Split> {
    set.load(split, &Request { image_size: 224, workers: 1, ..REQUEST })
}

fn error(root: &Path, extra: &str) -> String {
    load(&*set(root, extra), SplitName::Test).unwrap_err().to_string()
}

#[test]
fn columns_become_rows() {
    // x = (np.arange(27648 * 5) * 7 % 251).astype(np.uint8).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2), as torchvision
    // x[0, 0, 0, 1], x[0, 1, 2, 3], x[4, 2, 95, 0]
    let root = binary();
    let split = load(&*set(root.path(), "labels = \"stl10\""), SplitName::Test).unwrap();
    assert_eq!((split.labels.as_slice(), split.inputs.size()), ([0, 2, 7, 9, 1].as_slice(), (96, 96)));
    let x = split.inputs.gather(&[0, 1, 2, 3, 4]).unwrap();
    let at = |[n, c, h, w]: [usize; 4]| x[((n * 3 + c) * SIDE + h) * SIDE + w];
    assert_eq!([at([0, 0, 0, 1]), at([0, 1, 2, 3]), at([4, 2, 95, 0])], [170, 27, 233]);
}

#[test]
fn the_nine_shared_classes_under_their_cifar_names() {
    let root = binary();
    let nine = set(root.path(), "");
    assert_eq!(
        nine.classes().unwrap(),
        ["airplane", "automobile", "bird", "cat", "deer", "dog", "horse", "ship", "truck"]
    );
    let split = load(&*nine, SplitName::Test).unwrap();
    assert_eq!((split.name.as_str(), split.labels.as_slice()), ("stl10/test", [0, 1, 8, 2].as_slice()));
    // The monkey is left out, so image 2 is now the truck, whose first pixel is 7 * 3 * 27648 mod 251.
    assert_eq!(split.inputs.gather(&[2]).unwrap()[0], (7 * 3 * PIXELS % 251) as u8);
    let two = load(&*set(root.path(), "classes = [\"truck\", \"airplane\"]\nsubset = 1"), SplitName::Test).unwrap();
    assert_eq!((two.labels, two.inputs.len()), (vec![0], 1));
}

#[test]
fn files_that_do_not_fit_are_named() {
    let root = binary();
    std::fs::write(root.path().join("test_y.bin"), [1, 3, 8, 10, 11]).unwrap();
    assert!(error(root.path(), "").contains("test_y.bin: image 4 has label 11, but labels are 1 to 10"));
    std::fs::write(root.path().join("test_y.bin"), [1, 3]).unwrap();
    let text = error(root.path(), "");
    assert!(text.contains("test_X.bin: 138240 bytes, but the 2 labels of ") && text.contains("need 55296"), "{text}");
    std::fs::write(root.path().join("test_y.bin"), []).unwrap();
    assert!(error(root.path(), "").contains("test_y.bin: is empty"));
    std::fs::write(root.path().join("class_names.txt"), "a\nb\n").unwrap();
    assert!(error(root.path(), "").contains("class_names.txt: not STL-10's classes"));
    let set = set(root.path(), "");
    assert!(load(&*set, SplitName::Val).unwrap_err().to_string().contains("no split `val`"));
    std::fs::remove_file(root.path().join("class_names.txt")).unwrap();
    assert!(
        load(&*set, SplitName::Train).unwrap_err().to_string().contains("train_X.bin: cannot read; set data.stl10")
    );
}

#[test]
fn config_mistakes_are_reported() {
    for (text, part) in [
        ("classes = [\"monkey\", \"cat\"]", "unknown class `monkey`"),
        ("classes = [\"cat\", \"cat\"]", "`cat` comes twice"),
        ("classes = [\"cat\"]", "at least two classes"),
        (
            "labels = \"stl10\"\nclasses = [\"automobile\", \"cat\"]",
            "unknown class `automobile`; known: airplane, bird, car,",
        ),
        ("", "root is required"),
    ] {
        let tree = Tree::parse("test.toml", text).unwrap();
        let reader = Reader::root(&tree);
        let set = (ENTRY.read)(&reader);
        let problems = reader.close(set).err().unwrap().to_string();
        assert!(problems.contains(part), "{part} not in: {problems}");
    }
}
