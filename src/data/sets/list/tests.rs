use std::path::Path;

use super::*;
use crate::data::labels::Labels;
use crate::data::numbers::Scale;
use crate::data::testing::{error, grays, load, mistakes, put, set, write};

fn images(table: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    (0..5).for_each(|i| put(root.path(), &format!("img/{i}.png"), i));
    write(root.path(), "list.csv", table);
    root
}

fn of(root: &Path, extra: &str) -> Box<dyn Dataset> {
    set(&ENTRY, root, extra)
}

#[test]
fn names_splits_and_groups() {
    let root = images(
        "group,label,path,split\nb,dog,img/0.png,train\na, cat ,img/1.png,train\nb,cat,img/2.png,val\nc,emu,img/3.png,test\n",
    );
    let set = of(root.path(), "");
    assert_eq!(set.classes().unwrap(), ["cat", "dog", "emu"]);
    assert_eq!(set.splits().unwrap(), SplitName::ALL);
    let train = load(&*set, SplitName::Train).unwrap();
    assert_eq!((grays(&train), &train.labels[..]), (vec![0, 1], &[1, 0][..]));
    let groups = train.groups.unwrap();
    assert_eq!((groups.names, groups.of), (vec!["a".to_string(), "b".into()], vec![1, 0]));
    assert_eq!(load(&*set, SplitName::Test).unwrap().labels, [2]);
}

/// The numbers by which a network scales what it learns are those that it trains on.
#[test]
fn numbers_are_those_of_the_subset() {
    let root = images("path,age,split\nimg/0.png,30,train\nimg/1.png,-2,train\nimg/2.png,7,train\nimg/3.png,8,test\n");
    for (subset, expected) in [("", &[30.0, -2.0, 7.0][..]), ("subset = { train = 2 }", &[30.0, -2.0])] {
        let set = of(root.path(), &format!("columns = {{ target = \"age\" }}\n{subset}"));
        assert_eq!(Labels::of(&*set).unwrap().scale, Some(Scale::of(expected).unwrap()));
        assert_eq!(load(&*set, SplitName::Train).unwrap().numbers.unwrap(), expected);
    }
    // A row whose image is damaged is left out with its number, which may be a placeholder.
    write(root.path(), "img/2.png", "no image");
    let set = of(root.path(), "columns = { target = \"age\" }\nskip_corrupt = true");
    assert_eq!(Labels::of(&*set).unwrap().scale, Some(Scale::of(&[30.0, -2.0]).unwrap()));
}

#[test]
fn numbers_are_classes_and_a_list_without_splits_is_a_test_set() {
    let root = images("file,y\nimg/0.png,2\nimg/1.png,0\nimg/4.png,2\n");
    let set = of(root.path(), "columns = { path = \"file\", label = \"y\" }");
    assert_eq!(set.classes().unwrap(), ["0", "1", "2"]);
    assert_eq!(set.splits().unwrap(), [SplitName::Test]);
    let test = load(&*set, SplitName::Test).unwrap();
    assert_eq!((grays(&test), &test.labels[..], test.groups.is_none()), (vec![0, 1, 4], &[2, 0, 2][..], true));
    let text = error(&*set, SplitName::Train);
    assert!(text.contains("list.csv: has no column `split`, so that all of its images are for tests"), "{text}");
    let set = of(root.path(), "columns = { path = \"file\", label = \"y\" }\nclasses = [\"a\", \"b\", \"c\"]");
    assert_eq!(load(&*set, SplitName::Test).unwrap().labels, [2, 0, 2]);
    let set = of(root.path(), "columns = { path = \"file\", label = \"y\" }\nclasses = [\"a\", \"b\"]");
    assert!(error(&*set, SplitName::Test).contains("is of the class `2`, which is not one of data.list.classes"));
    // If any label is a name, numbers are names too.
    let set = of(root.path(), "columns = { path = \"file\", label = \"y\" }\nclasses = [\"1\", \"2\", \"3\"]");
    assert!(error(&*set, SplitName::Test).contains("is of the class `0`, which is not one of data.list.classes"));
}

#[test]
fn labels_from_one_are_doubted() {
    let names = |labels: &[&str]| names_from_one(&labels.iter().map(|label| label.to_string()).collect::<Vec<_>>());
    assert_eq!(names(&["2", "1", "2", "3"]).unwrap(), ["1", "2", "3"]);
    for others in [&["2", "0", "1"][..], &["00", "1"], &["1", "a"], &["1", "9"], &["a", "b"]] {
        assert_eq!(names(others), None, "{others:?}");
    }
}

#[test]
fn faults_are_named() {
    let root = images("path,label\nimg/0.png,a\nimg/none.png,b\nimg/empty.png,b\n");
    write(root.path(), "img/empty.png", "");
    let text = error(&*of(root.path(), ""), SplitName::Test);
    assert!(text.contains("list/test: 2 of 3 listed files cannot be used"), "{text}");
    assert!(text.contains("none.png: No such file") && text.contains("empty.png is empty"), "{text}");
    let text = error(&*of(root.path(), "columns = { split = \"fold\" }"), SplitName::Test);
    assert!(text.contains("list.csv: no column `fold`; its columns: path, label"), "{text}");
    let refused = |table: &str| {
        write(root.path(), "list.csv", table);
        error(&*of(root.path(), ""), SplitName::Test)
    };
    let others = refused("file,class\nimg/0.png,a\n");
    assert!(
        others.ends_with("no column `path`; its columns: file, class; data.list.columns.path names another one"),
        "{others}"
    );
    assert!(refused("path,label,split\nimg/0.png,a,dev\n").contains("list.csv:2: unknown split `dev`"));
    assert!(
        refused("path,label,Split\nimg/0.png,a,train\n")
            .ends_with("its column `Split` would not be read: name it `split` if that is meant, or else otherwise")
    );
    assert!(refused("path,label\nimg/0.png,a\nimg/1.png,\n").contains("list.csv:3: the label is empty"));
    let empty = "path,label,group\nimg/0.png,a,x\nimg/1.png,b,\n";
    assert!(refused(empty).contains("list.csv:3: the group is empty"));
    // The rows behind the quote would be a part of the label.
    let open = "path,label\nimg/0.png,\"a\"\"b\"\nimg/1.png,\"c\nimg/2.png,d\n";
    assert!(refused(open).contains("list.csv:3: a cell begins with a quote that is never closed"));
    assert!(refused("path;label;x\nimg/0.png;a;0,5\n").contains("has semicolons between its columns"));
    std::fs::write(root.path().join("list.csv"), b"path,label\nimg/0.png,\xe4\n").unwrap();
    assert!(error(&*of(root.path(), ""), SplitName::Test).contains("list.csv: is not UTF-8: save it as UTF-8"));
    assert!(
        refused("path,label,split\nimg/0.png,a,train\nimg/0.png,a,test\n").contains("is listed twice (train, test)")
    );
    for same in ["./img/0.png", "img/../img/0.png", "img/./0.png"] {
        let text = refused(&format!("path,label\nimg/0.png,a\n{same},a\n"));
        assert!(text.contains("is listed twice"), "{same}: {text}");
    }
    assert!(refused("path,label,split\nimg/0.png,a,train\n").contains("no image of the split `test`"));
    let twice = refused("path,label,split,label\nimg/0.png,a,test,b\n");
    assert!(twice.contains("list.csv: has several columns `label`: rename all but one"), "{twice}");
    assert!(mistakes(&ENTRY, "classes = [\"a\", \"a\"]").contains("`a` comes twice"));
    assert!(mistakes(&ENTRY, "columns = { file = \"x\" }").contains("columns.file"));
    assert!(mistakes(&ENTRY, "columns = { target = \"x\", label = \"y\" }").contains("means nothing beside target"));
}

#[test]
fn two_lists_of_one_folder_have_two_names() {
    let label = |extra: &str| of(Path::new("/some/birds"), extra).label();
    assert_eq!([label(""), label("list = \"rare.csv\"")], ["birds", "birds/rare"]);
}
