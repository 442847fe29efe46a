use std::path::Path;

use image::RgbImage;

use super::*;
use crate::data::Inputs;
use crate::data::testing::{self, REQUEST};

fn put(root: &Path, file: &str, gray: u8) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    RgbImage::from_pixel(6, 4, image::Rgb([gray; 3])).save(path).unwrap();
}

fn damage(root: &Path, file: &str) {
    std::fs::write(root.join(file), "damaged").unwrap();
}

fn set(root: &Path, extra: &str) -> Box<dyn Dataset> {
    testing::set(&ENTRY, root, extra)
}

fn load(set: &dyn Dataset, split: SplitName, memory_bytes: usize) -> Result<Split> {
    set.load(split, &Request { memory_bytes, ..REQUEST })
}

fn error(set: &dyn Dataset, split: SplitName) -> String {
    format!("{:#}", load(set, split, usize::MAX).unwrap_err())
}

fn two_classes() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, gray) in [("test/cat/b.png", 2), ("test/cat/a.png", 1), ("test/ant/x.bmp", 3), ("train/ant/t.png", 4)] {
        put(root.path(), file, gray);
    }
    std::fs::write(root.path().join("test/cat/notes.txt"), "no image").unwrap();
    root
}

#[test]
#[cfg(unix)]
fn hidden_files_and_links_to_folders_do_not_count() {
    let root = two_classes();
    put(root.path(), "test/cat/.ipynb_checkpoints/a-checkpoint.png", 9);
    put(root.path(), "test/cat/._a.png", 9);
    put(root.path(), "test/__MACOSX/cat/._a.png", 9);
    for (link, target) in [("test/cat/self", "."), ("test/cat/up", ".."), ("test/ant/cat", "../cat")] {
        std::os::unix::fs::symlink(target, root.path().join(link)).unwrap();
    }
    // The folder of a class may be a link to another place.
    std::fs::rename(root.path().join("test/ant"), root.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", root.path().join("test/ant")).unwrap();
    let set = set(root.path(), "classes = [\"cat\", \"ant\"]");
    assert_eq!(load(&*set, SplitName::Test, usize::MAX).unwrap().labels, [0, 0, 1]);
}

#[test]
fn the_size_is_that_of_the_first_readable_image() {
    let root = two_classes();
    damage(root.path(), "test/ant/a.png");
    let set = set(&root.path().join("test"), "resize = \"none\"\nskip_corrupt = true");
    let split = load(&*set, SplitName::Test, usize::MAX).unwrap();
    assert_eq!((split.inputs.size(), split.labels, split.corrupt.unwrap().count), ((4, 6), vec![0, 1, 1], 1));
}

#[test]
fn memory_and_files_hold_the_same_images() {
    let root = two_classes();
    let set = set(root.path(), "");
    assert_eq!(set.classes().unwrap(), ["ant"]);
    let set = self::set(root.path(), "classes = [\"cat\", \"ant\"]");
    let (packed, files) = (load(&*set, SplitName::Test, 144).unwrap(), load(&*set, SplitName::Test, 143).unwrap());
    assert!(matches!(packed.inputs, Inputs::Packed(_)) && matches!(files.inputs, Inputs::Files(_)));
    assert_eq!((&packed.labels, packed.inputs.size()), (&vec![0, 0, 1], (4, 4)));
    let pixels = packed.inputs.gather(&[0, 1, 2]).unwrap();
    assert_eq!(pixels, files.inputs.gather(&[0, 1, 2]).unwrap());
    assert_eq!([pixels[0], pixels[48], pixels[96]], [1, 2, 3]);
    assert_eq!(files.select(&[2]).inputs.gather(&[0]).unwrap(), pixels[96..]);
}

#[test]
fn a_root_of_classes_is_a_test_set() {
    let root = two_classes();
    let set = set(&root.path().join("test"), "resize = \"none\"");
    assert_eq!(set.classes().unwrap(), ["ant", "cat"]);
    let split = load(&*set, SplitName::Test, usize::MAX).unwrap();
    assert_eq!((split.labels, split.inputs.size()), (vec![0, 1, 1], (4, 6)));
    assert!(error(&*set, SplitName::Train).contains("no folder `train`, so the class folders in it are one test set"));
    let set = self::set(root.path(), "");
    assert!(error(&*set, SplitName::Val).contains("no folder `val`, only train, test"));
}

#[test]
fn corrupt_files_are_named_or_left_out() {
    let root = two_classes();
    damage(root.path(), "test/cat/a.png");
    damage(root.path(), "test/ant/x.bmp");
    let classes = "classes = [\"cat\", \"ant\"]\n";
    let text = error(&*set(root.path(), classes), SplitName::Test);
    assert!(
        text.contains("2 of 3 images cannot be decoded") && text.contains("a.png") && text.contains("x.bmp"),
        "{text}"
    );
    let set = set(root.path(), &format!("{classes}skip_corrupt = true"));
    for memory_bytes in [0, usize::MAX] {
        let split = load(&*set, SplitName::Test, memory_bytes).unwrap();
        assert_eq!((split.corrupt.unwrap().count, split.labels.as_slice()), (2, [0].as_slice()));
        assert_eq!(split.inputs.gather(&[0]).unwrap(), [2; 48]);
    }
    damage(root.path(), "test/cat/b.png");
    assert!(error(&*set, SplitName::Test).ends_with("none is left"));
}

#[test]
fn only_five_corrupt_files_are_named() {
    let root = tempfile::tempdir().unwrap();
    for i in 0..8 {
        put(root.path(), &format!("ant/{i}.png"), i);
    }
    (1..8).for_each(|i| damage(root.path(), &format!("ant/{i}.png")));
    let text = error(&*set(root.path(), ""), SplitName::Test);
    assert!(text.contains("7 of 8") && text.contains("5.png") && !text.contains("6.png"), "{text}");
}

#[test]
fn folders_that_do_not_fit_are_refused() {
    let root = two_classes();
    assert!(
        error(&*set(root.path(), "classes = [\"ant\"]"), SplitName::Test).contains("cat: not one of the 1 classes")
    );
    assert!(error(&*set(root.path(), "test = \"tset\""), SplitName::Test).contains("tset: no such folder"));
    std::fs::create_dir(root.path().join("train/empty")).unwrap();
    assert!(error(&*set(root.path(), ""), SplitName::Train).contains("empty: no image in this class folder"));
    damage(root.path(), "train/empty/1.HEIC");
    let text = error(&*set(root.path(), ""), SplitName::Train);
    assert!(text.contains("train/empty: 1 image is in a form that bella does not decode (.heic)"), "{text}");
    std::fs::create_dir(root.path().join("val")).unwrap();
    assert!(error(&*set(root.path(), ""), SplitName::Val).contains("val: no class folders in it"));
    assert!(error(&*set(&root.path().join("gone"), ""), SplitName::Test).contains("gone: no such folder"));
}

#[test]
fn a_share_of_class_folders_is_the_test_split() {
    let root = tempfile::tempdir().unwrap();
    for file in 0..10 {
        put(root.path(), &format!("ant/{file}.png"), file);
        put(root.path(), &format!("cat/deep/{file}.png"), 100 + file);
    }
    let drawn = set(root.path(), "test = 0.3");
    assert_eq!(drawn.splits().unwrap(), [SplitName::Train, SplitName::Test]);
    assert_eq!(drawn.classes().unwrap(), ["ant", "cat"]);
    let grays = |set: &dyn Dataset, split| -> Vec<u8> {
        let Inputs::Packed(packed) = load(set, split, usize::MAX).unwrap().inputs else { panic!("they fit") };
        packed.pixels.chunks(packed.pixels.len() / packed.len()).map(|image| image[0]).collect()
    };
    let (test, train) = (grays(&*drawn, SplitName::Test), grays(&*drawn, SplitName::Train));
    assert_eq!((test.len(), train.len()), (6, 14));
    assert!(test.iter().all(|gray| !train.contains(gray)), "{test:?} {train:?}");
    let again = set(root.path(), "test = 0.3");
    assert_eq!(grays(&*again, SplitName::Test), test);
    let other = set(root.path(), "test = 0.3\nsplit_seed = 1");
    assert_ne!(grays(&*other, SplitName::Test), test);
    let resolved = toml::to_string(&other.resolved()).unwrap();
    assert!(resolved.contains("test = 0.3") && resolved.contains("split_seed = 1"), "{resolved}");
    assert!(!toml::to_string(&drawn.resolved()).unwrap().contains("split_seed"));
}

#[test]
fn a_test_split_is_not_drawn_beside_one() {
    let root = two_classes();
    assert!(error(&*set(root.path(), "test = 0.2"), SplitName::Test).contains("is a test split already"));
    std::fs::remove_dir_all(root.path().join("test")).unwrap();
    put(root.path(), "train/ant/u.png", 5);
    let drawn = set(root.path(), "test = 0.2");
    // A folder `train` alone holds the images of both.
    assert_eq!(load(&*drawn, SplitName::Test, usize::MAX).unwrap().len(), 1);
    assert_eq!(load(&*drawn, SplitName::Train, usize::MAX).unwrap().len(), 1);
    assert!(error(&*drawn, SplitName::Val).contains("no folder `val`"));
    // Images without class folders, as competitions hide their labels, are no test split.
    put(root.path(), "test/1.png", 6);
    assert_eq!(load(&*drawn, SplitName::Test, usize::MAX).unwrap().len(), 1);
    // Beside classes, their folder would be one.
    let root_of_classes = tempfile::tempdir().unwrap();
    for (file, shade) in [("ant/1.png", 1), ("bee/1.png", 2), ("test/1.png", 3)] {
        put(root_of_classes.path(), file, shade);
    }
    assert!(error(&*set(root_of_classes.path(), "test = 0.2"), SplitName::Test).contains("is a test split already"));
    let flat = set(&root.path().join("train"), "");
    assert!(error(&*flat, SplitName::Train).contains("set data.image-folder.test = 0.2"));
}

#[test]
fn splits_of_other_names_are_no_classes() {
    let root = tempfile::tempdir().unwrap();
    for file in ["Training/a/1.png", "Training/b/2.png", "Testing/a/3.png", "Testing/b/4.png"] {
        put(root.path(), file, 1);
    }
    let rule =
        "its folders Testing, Training look like splits, and would be classes: name them with data.image-folder.train";
    for extra in ["", "test = 0.5"] {
        let set = set(root.path(), extra);
        let found = [set.classes().unwrap_err(), set.splits().unwrap_err()].map(|error| error.to_string());
        assert!(found.iter().all(|text| text.contains(rule)), "{found:?}");
        assert!(error(&*set, SplitName::Test).contains(rule));
    }
    let named = set(root.path(), "train = \"Training\"\ntest = \"Testing\"");
    assert_eq!(named.classes().unwrap(), ["a", "b"]);
    assert_eq!(load(&*named, SplitName::Train, 0).unwrap().labels, [0, 1]);
    // Classes may be called so.
    for file in ["vehicles/Train/1.png", "vehicles/test/2.png"] {
        put(root.path(), file, 1);
    }
    assert_eq!(set(&root.path().join("vehicles"), "train = \".\"").classes().unwrap(), ["Train", "test"]);
}
