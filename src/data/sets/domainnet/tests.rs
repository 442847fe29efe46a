use std::path::Path;

use super::*;
use crate::data::testing::{error, grays, load, mistakes, put, set, write};

/// Returns two classes in the domains `real` and `sketch`. Each image has a different gray.
fn domains() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let lists = [
        ("real_train", "real/aircraft_carrier/a.png 0\nreal/zebra/b.png 1\nreal/zebra/c.png 1\n\n"),
        ("real_test", "real/zebra/d.png 1\n"),
        ("sketch_test", "sketch/zebra/e.png 1\nsketch/aircraft_carrier/f.png 0\n"),
    ];
    for (list, text) in lists {
        write(root.path(), &format!("{list}.txt"), text);
        for line in text.lines().filter(|line| !line.is_empty()) {
            let file = line.split(' ').next().unwrap();
            put(root.path(), file, file.as_bytes()[file.len() - 5]);
        }
    }
    root
}

fn of(root: &Path, extra: &str) -> Box<dyn Dataset> {
    set(&ENTRY, root, extra)
}

#[test]
fn trains_on_one_domain_and_tests_on_others() {
    let root = domains();
    let set = of(root.path(), "");
    assert_eq!(
        (set.label(), set.classes().unwrap()),
        ("domainnet-real".into(), vec!["aircraft_carrier".into(), "zebra".into()])
    );
    let train = load(&*set, SplitName::Train).unwrap();
    assert_eq!((grays(&train), &train.labels[..]), (b"abc".to_vec(), &[0, 1, 1][..]));
    assert_eq!(train.name, "domainnet/real/train");
    assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), b"d");
    assert!(set.test_sets().is_empty());
    assert_eq!(set.published(), Published::new(345, &[(SplitName::Train, 120_906), (SplitName::Test, 52_041)]));
    assert!(error(&*set, SplitName::Val).contains("no split `val`"));
}

#[test]
fn several_domains_are_test_sets_of_their_own() {
    let root = domains();
    let set = of(root.path(), "test = [\"sketch\", \"real\"]");
    let each = set.test_sets();
    let labels: Vec<String> = each.iter().map(|(_, set)| set.label()).collect();
    assert_eq!(each[0].0, "sketch");
    assert_eq!((set.label(), labels), ("domainnet".into(), vec!["domainnet-sketch".into(), "domainnet-real".into()]));
    let sketch = load(&*each[0].1, SplitName::Test).unwrap();
    assert_eq!((grays(&sketch), &sketch.labels[..]), (b"ef".to_vec(), &[1, 0][..]));
    assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), b"efd");
    assert_eq!(set.published().images_of(SplitName::Test), Some(20_916 + 52_041));
    assert!(mistakes(&ENTRY, "test = [\"real\", \"real\"]").contains("`real` comes twice"));
    assert!(mistakes(&ENTRY, "train = \"../real\"").contains("no slashes"));
}

#[test]
fn lists_that_do_not_fit_are_refused_by_line() {
    let root = domains();
    let refused = |list: &str, text: &str, split| {
        write(root.path(), list, text);
        error(&*of(root.path(), "test = [\"sketch\"]"), split)
    };
    let text = refused("sketch_test.txt", "sketch/zebra/e.png 0\n", SplitName::Test);
    assert!(text.contains("sketch_test.txt:1: label 0 is `zebra` here, but `aircraft_carrier`"), "{text}");
    assert!(refused("sketch_test.txt", "sketch/zebra/e.png 2\n", SplitName::Test).contains("label 2, but there are 2"));
    let text = refused("sketch_test.txt", "sketch/zebra/e.png 1\nsketch/zebra/gone.png 1\n", SplitName::Test);
    assert!(text.contains("1 of 2 listed files cannot be used") && text.contains("gone.png"), "{text}");
    assert!(
        refused("sketch_test.txt", "sketch/zebra/e.png\n", SplitName::Test).contains("sketch_test.txt:1: `sketch/")
    );
    assert!(refused("sketch_test.txt", "\n", SplitName::Test).contains("sketch_test.txt: lists no image"));
    let text = refused("real_train.txt", "real/zebra/b.png 0\nreal/zebra/c.png 1\n", SplitName::Train);
    assert!(text.contains("two labels are of one class, `zebra`"), "{text}");
    let text = refused("real_train.txt", "real/zebra/b.png 0\nreal/yak/c.png 0\n", SplitName::Train);
    assert!(text.contains("real_train.txt:2: label 0 is `zebra` and `yak`"), "{text}");
    assert!(refused("real_train.txt", "real/zebra/b.png 1\n", SplitName::Train).contains("no image of label 0"));
    std::fs::remove_file(root.path().join("real_train.txt")).unwrap();
    let text = error(&*of(root.path(), ""), SplitName::Train);
    assert!(text.contains("real_train.txt: cannot read; `bella data check domainnet=ROOT` says"), "{text}");
}
