use std::path::Path;

use super::*;
use crate::data::testing::{error, grays, load, mistakes, put, set, write};

const HEADER: &str = ",patient,node,x_coord,y_coord,tumor,slide,center,split\n";

/// Returns a folder with one patch for each of `(patient, tumor, slide, center, split)`. Its gray is the number of the
/// row.
fn hospital(rows: &[(&str, u8, u8, u8, u8)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let mut table = HEADER.to_string();
    for (i, (patient, tumor, slide, center, split)) in rows.iter().enumerate() {
        table += &format!("{i},{patient},4,{i},7,{tumor},{slide},{center},{split}\n");
        let stem = format!("patient_{patient:0>3}_node_4");
        put(root.path(), &format!("camelyon17_v1.0/patches/{stem}/patch_{stem}_x_{i}_y_7.png"), i as u8);
    }
    write(root.path(), "camelyon17_v1.0/metadata.csv", &table);
    root
}

const ROWS: [(&str, u8, u8, u8, u8); 7] = [
    ("004", 1, 10, 0, 0),
    ("4", 0, 12, 3, 0),
    ("017", 1, 10, 4, 1),
    ("020", 0, 20, 1, 0),
    ("040", 1, 30, 2, 1),
    ("040", 0, 31, 2, 0),
    ("096", 1, 9, 4, 0),
];

fn of(root: &Path, extra: &str) -> Box<dyn Dataset> {
    set(&ENTRY, root, extra)
}

#[test]
fn centers_make_the_splits_and_slides_the_groups() {
    let root = hospital(&ROWS);
    let set = of(root.path(), "");
    assert_eq!(set.splits().unwrap(), SplitName::ALL);
    let train = load(&*set, SplitName::Train).unwrap();
    assert_eq!((grays(&train), &train.labels[..]), (vec![0, 1, 6], &[1, 0, 1][..]));
    let groups = train.groups.unwrap();
    assert_eq!(
        (groups.names, groups.of),
        (["slide 9", "slide 10", "slide 12"].map(str::to_string).to_vec(), vec![1, 2, 0])
    );
    assert_eq!(grays(&load(&*set, SplitName::Val).unwrap()), [3]);
    assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), [4, 5]);
    assert_eq!(set.published().images_of(SplitName::Val), Some(34_904));
}

#[test]
fn validation_inside_the_training_centers_and_groups_by_center() {
    let root = hospital(&ROWS);
    let set = of(root.path(), "val = \"id_val\"\ngroup_by = \"center\"\nclasses = [\"healthy\", \"tumour\"]");
    assert_eq!(grays(&load(&*set, SplitName::Val).unwrap()), [2]);
    let groups = load(&*set, SplitName::Train).unwrap().groups.unwrap();
    assert_eq!(
        (groups.names, groups.of),
        (["center 0", "center 3", "center 4"].map(str::to_string).to_vec(), vec![0, 1, 2])
    );
    assert_eq!(set.classes().unwrap(), ["healthy", "tumour"]);
    assert_eq!(set.published().images_of(SplitName::Val), Some(33_560));
    assert_eq!(set.resolved()["val"].as_str(), Some("id_val"));
    assert!(mistakes(&ENTRY, "classes = [\"one\"]").contains("must be two names"));
}

#[test]
fn an_own_table_takes_a_part() {
    let root = hospital(&ROWS);
    let folder = root.path().join("camelyon17_v1.0");
    let table = std::fs::read_to_string(folder.join("metadata.csv")).unwrap();
    let part: Vec<&str> =
        table.lines().enumerate().filter(|(i, _)| [0, 1, 6].contains(i)).map(|(_, line)| line).collect();
    std::fs::write(folder.join("mine.csv"), part.join("\n")).unwrap();
    let set = of(root.path(), "metadata = \"mine.csv\"");
    assert_eq!(set.splits().unwrap(), [SplitName::Train, SplitName::Test]);
    assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), [5]);
    let text = error(&*set, SplitName::Val);
    assert!(text.contains("mine.csv: no patch of the split `val`; data.camelyon17.val = \"id_val\""), "{text}");
    assert_eq!(grays(&load(&*of(root.path(), "subset = 2"), SplitName::Train).unwrap()), [0, 1]);
}

#[test]
fn tables_that_do_not_fit_are_refused_by_line() {
    let root = hospital(&ROWS[..1]);
    let file = root.path().join("camelyon17_v1.0/metadata.csv");
    let refused = |table: &str| {
        std::fs::write(&file, table).unwrap();
        error(&*of(root.path(), ""), SplitName::Train)
    };
    let text = refused(&HEADER.replace(",center", ",hospital").replace('\n', "\n0,004,4,0,7,1,10,0,0\n"));
    assert!(text.contains("metadata.csv: no column `center`; its columns: , patient, node,"), "{text}");
    let text = refused(&format!("{HEADER}0,004,4,0,7,1,10,5,0\n"));
    assert!(text.contains("metadata.csv:2: center = 5, but centers are 0 to 4"), "{text}");
    assert!(refused(&format!("{HEADER}0,004,4,0,7,1,10,0,2\n")).contains("split = 2, but it is 0 (train) or 1"));
    assert!(refused(&format!("{HEADER}0,004,4,0,7,yes,10,0,0\n")).contains("tumor = `yes`, but it is a whole number"));
    assert!(refused(&format!("{HEADER}0,004,4,0,7,3,10,0,0\n")).contains("tumor = 3, but it is 0 or 1"));
    assert!(refused(HEADER).contains("no row below the header"));
    assert!(refused(&format!("{HEADER}0,004,4\n")).contains("metadata.csv: cannot read as CSV"));
    let text = refused(&format!("{HEADER}0,004,4,0,7,1,10,0,0\n1,004,4,99,7,1,10,0,0\n"));
    assert!(
        text.contains("camelyon17/train: 1 of 2 listed files cannot be used") && text.contains("x_99_y_7.png"),
        "{text}"
    );
}
