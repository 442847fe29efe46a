use super::*;
use crate::results::store::Row;

/// Returns a table with the columns `set`, `condition`, `shift_source`, `samples` and `images`.
fn table(rows: &[[&str; 5]]) -> Table {
    let mut table = Table::default();
    for cells in rows {
        let mut row = Row::new();
        let columns = ["set", "condition", "shift_source", "samples", "images"];
        columns.iter().zip(cells).for_each(|(column, cell)| row.push(*column, *cell));
        table.append(&row);
    }
    table
}

fn shown(rows: &[[&str; 5]]) -> Vec<String> {
    let mut table = table(rows);
    distinguish(&mut table);
    (0..rows.len()).map(|row| table.get(row, "set").unwrap().to_string()).collect()
}

#[test]
fn one_image_set_keeps_its_plain_name() {
    let rows = [["digits", "clean", "", "797", "1f"], ["digits", "noise:3 (bella)", "bella", "797", "1f"]];
    assert_eq!(shown(&rows), ["digits", "digits"]);
    assert_eq!(
        shown(&[["digits", "clean", "", "797", ""], ["digits", "clean", "", "797", "1f"]]),
        ["digits", "digits"]
    );
    assert_eq!(shown(&[["digits", "clean", "", "", ""], ["digits", "clean", "", "797", "1f"]]), ["digits", "digits"]);
}

#[test]
fn different_images_of_one_name_are_told_by_number_or_fingerprint() {
    let numbers = [["digits", "clean", "", "797", "1f"], ["digits", "noise:3 (bella)", "bella", "50", "2e"]];
    assert_eq!(shown(&numbers), ["digits [797 images]", "digits [50 images]"]);
    let equal = [["val", "clean", "", "9", "1f"], ["val", "clean", "", "9", "2e"], ["val", "clean", "", "9", ""]];
    assert_eq!(shown(&equal), ["val [9 images, 1f]", "val [9 images, 2e]", "val [9 images, fingerprint unknown]"]);
    let older = [["val", "clean", "", "9", ""], ["val", "clean", "", "1", ""], ["svhn", "clean", "", "5", ""]];
    assert_eq!(shown(&older), ["val [9 images]", "val [1 image]", "svhn"]);
}

// Each version has images of its own, so only a different number of images makes it another set.
#[test]
fn published_versions_are_one_set() {
    let version = |condition, samples, images| ["c10-c", condition, "published", samples, images];
    let one = [version("fog:1", "100", "1f"), version("snow:1", "100", "2e")];
    assert_eq!(shown(&one), ["c10-c", "c10-c"]);
    let two = [one[0], one[1], version("fog:1", "9", "3d"), version("snow:1", "9", "4c")];
    let (many, few) = ("c10-c [100 images]", "c10-c [9 images]");
    assert_eq!(shown(&two), [many, many, few, few]);
}

#[test]
fn stored_names_stay_at_hand() {
    let mut plain = table(&[["digits", "clean", "", "797", "1f"]]);
    distinguish(&mut plain);
    assert_eq!(stored_name(&plain, "set"), "set");
    let mut twice = table(&[["digits", "clean", "", "797", "1f"], ["digits", "clean", "", "50", "2e"]]);
    distinguish(&mut twice);
    distinguish(&mut twice);
    assert_eq!(twice.get(1, stored_name(&twice, "set")), Some("digits"));
    assert_eq!(twice.get(1, "set"), Some("digits [50 images]"));
}
