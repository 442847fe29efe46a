use super::*;
use crate::data::testing::{error, grays, load, mistakes, put, set, write};

fn kitti() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let lists = [
        ("train800.txt", vec![(0, 3)]),
        ("val200.txt", vec![(1, 0)]),
        ("train800val200.txt", vec![(0, 3), (1, 0)]),
        ("test.txt", vec![(2, 1), (3, 2)]),
    ];
    for (list, images) in lists {
        let line = |(image, label): &(u8, u8)| format!("images/{image}.png {label}\n");
        write(root.path(), &format!("kitti/{list}"), &images.iter().map(line).collect::<String>());
        images.iter().for_each(|(image, _)| put(root.path(), &format!("kitti/images/{image}.png"), *image));
    }
    root
}

#[test]
fn all_thousand_images_or_eight_hundred() {
    let root = kitti();
    let all = set(&ENTRY, root.path(), "task = \"kitti\"");
    let part = set(&ENTRY, root.path(), "task = \"kitti\"\ntrain = \"train800\"");
    assert_eq!(
        (all.label(), all.classes().unwrap()),
        ("vtab-kitti".into(), ["0", "1", "2", "3"].map(String::from).to_vec())
    );
    let train = load(&*all, SplitName::Train).unwrap();
    assert_eq!((grays(&train), &train.labels[..]), (vec![0, 1], &[3, 0][..]));
    assert_eq!(load(&*part, SplitName::Train).unwrap().labels, [3]);
    assert_eq!(load(&*part, SplitName::Val).unwrap().labels, [0]);
    assert_eq!(load(&*part, SplitName::Test).unwrap().labels, [1, 2]);
    assert!(error(&*all, SplitName::Val).contains("set data.vtab.train = \"train800\""));
    assert_eq!(part.published().images.iter().map(|(_, count)| count).sum::<usize>(), 800 + 200 + 711);
    assert_eq!(all.resolved()["train"].as_str(), Some("train800val200"));
}

#[test]
fn mistakes_are_named() {
    let root = kitti();
    let set = set(&ENTRY, root.path(), "task = \"kitti\"");
    write(root.path(), "kitti/test.txt", "images/2.png 4\n");
    assert!(error(&*set, SplitName::Test).contains("test.txt:1: label 4, but kitti has 4 classes"));
    write(root.path(), "kitti/test.txt", "images/2.png 1\nimages/9.png 1\n");
    assert!(error(&*set, SplitName::Test).contains("images/9.png: No such file"));
    write(root.path(), "kitti/test.txt", "images/2.png\n");
    assert!(error(&*set, SplitName::Test).contains("test.txt:1: `images/2.png` is not `<image> <label>`"));
    assert!(mistakes(&ENTRY, "task = \"imagenet\"").contains("unknown task; known: cifar, caltech101, dtd"));
    assert!(mistakes(&ENTRY, "").contains("task is required"));
    assert!(mistakes(&ENTRY, "task = \"kitti\"\nclasses = [\"a\"]").contains("must be 4 names for the task kitti"));
}
