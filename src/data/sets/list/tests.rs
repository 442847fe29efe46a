use std::path::Path;

use super::*;
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
    assert!(refused("path,label,split\nimg/0.png,a,dev\n").contains("list.csv:2: unknown split `dev`"));
    assert!(refused("path,label\nimg/0.png,a\nimg/1.png,\n").contains("list.csv:3: the label is empty"));
    assert!(
        refused("path,label,split\nimg/0.png,a,train\nimg/0.png,a,test\n").contains("is listed twice (train, test)")
    );
    assert!(refused("path,label,split\nimg/0.png,a,train\n").contains("no image of the split `test`"));
    assert!(mistakes(&ENTRY, "classes = [\"a\", \"a\"]").contains("`a` comes twice"));
    assert!(mistakes(&ENTRY, "columns = { file = \"x\" }").contains("columns.file"));
}

#[test]
fn two_lists_of_one_folder_have_two_names() {
    let label = |extra: &str| of(Path::new("/some/birds"), extra).label();
    assert_eq!([label(""), label("list = \"rare.csv\"")], ["birds", "birds/rare"]);
}
