//! Distinguishes rows by the images they measure. If rows of one test set measure different images, each set of images
//! gets a name of its own, so that no table, figure or mean over seeds mixes them.

use std::collections::{BTreeMap, BTreeSet};

use super::FOREIGN_CONDITION;
use super::store::{ImageColumns, Table};

/// The columns for the images of a row's test set.
pub const TESTED: ImageColumns = ImageColumns { fingerprint: "images", count: "samples" };

/// The columns for the images of the foreign set in an out-of-distribution row.
pub const FOREIGN: ImageColumns = ImageColumns { fingerprint: "ood_images", count: "ood_samples" };

/// The columns that keep the stored name of a set when `set` or `ood_set` is renamed.
const STORED: &[(&str, &str)] = &[("set", "stored_set"), ("ood_set", "stored_ood_set")];

/// The number and the fingerprint of a set of images, as cells.
type Images = (String, String);

/// A name under which rows must measure one set of images: that of the set, and the condition of images of other classes.
type Named = (String, String);

/// Renames every set whose rows measure different images, with one name per set of images: `digits [797 images]` and
/// `digits [50 images]`. If two of them have the same number of images, the names carry the fingerprints. A row without
/// a fingerprint takes that of other rows with the same set and number of images, if it is unique. All tables that are shown
/// together are given at once, so that the images have the same name in each.
pub fn distinguish(tables: &mut [&mut Table]) {
    for (column, images) in [("set", TESTED), ("ood_set", FOREIGN)] {
        adopt_fingerprints(tables, column, &images);
        let names = names(tables, column, &images);
        tables.iter_mut().for_each(|table| rename(table, column, &images, &names));
    }
}

/// Returns the column that holds the stored name of a set. `column` is `set` or `ood_set`.
pub fn stored_name(table: &Table, column: &'static str) -> &'static str {
    let stored = STORED.iter().find(|(shown, _)| *shown == column).map(|(_, stored)| *stored);
    stored.filter(|stored| table.index(stored).is_some()).unwrap_or(column)
}

/// Gives the sets of a table their new names.
fn rename(table: &mut Table, column: &'static str, columns: &ImageColumns, names: &BTreeMap<(Named, Images), String>) {
    let new = |row: usize| names.get(&(named(table, row, column), images(table, row, columns)?));
    let renamed: Vec<(usize, String)> =
        (0..table.rows.len()).filter_map(|row| Some((row, new(row)?.clone()))).collect();
    if renamed.is_empty() {
        return;
    }
    let stored = STORED.iter().find(|(shown, _)| *shown == column).map_or(column, |(_, stored)| stored);
    let stored = table.add_column(stored);
    if let Some(shown) = table.index(column) {
        table.rows.iter_mut().filter(|row| row[stored].is_empty()).for_each(|row| row[stored] = row[shown].clone());
        renamed.into_iter().for_each(|(row, name)| table.rows[row][shown] = name);
    }
}

/// Fills in the fingerprints of rows of other programs, which lack them, where other rows determine them.
fn adopt_fingerprints(tables: &mut [&mut Table], column: &str, columns: &ImageColumns) {
    let key = |table: &Table, row: usize| {
        let count = cell(table, row, columns.count).to_string();
        (named(table, row, column), part(table, row).to_string(), count)
    };
    let mut known: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (table, row) in rows(tables, column) {
        let fingerprint = cell(table, row, columns.fingerprint);
        if !fingerprint.is_empty() {
            known.entry(key(table, row)).or_default().insert(fingerprint.to_string());
        }
    }
    for table in tables.iter_mut() {
        let Some(place) = table.index(columns.fingerprint).filter(|_| table.index(column).is_some()) else { continue };
        for row in 0..table.rows.len() {
            let only = known.get(&key(table, row)).filter(|all| all.len() == 1).and_then(|all| all.first());
            if let Some(only) = only.filter(|_| table.rows[row][place].is_empty()) {
                table.rows[row][place].clone_from(only);
            }
        }
    }
}

/// Returns the new names for the images of those sets whose rows measure different ones.
fn names(tables: &[&mut Table], column: &str, columns: &ImageColumns) -> BTreeMap<(Named, Images), String> {
    let mut sets: BTreeMap<Named, BTreeMap<&str, BTreeSet<Images>>> = BTreeMap::new();
    for (table, row) in rows(tables, column) {
        if let Some(images) = images(table, row, columns) {
            sets.entry(named(table, row, column)).or_default().entry(part(table, row)).or_default().insert(images);
        }
    }
    let mut names = BTreeMap::new();
    for (named, parts) in sets.iter().filter(|(_, parts)| parts.values().any(|images| images.len() > 1)) {
        let counts = |images: &BTreeSet<Images>| images.iter().map(|(count, _)| count).collect::<BTreeSet<_>>().len();
        let counts_tell = parts.values().all(|images| counts(images) == images.len());
        let set = &named.0;
        for (count, fingerprint) in parts.values().flatten() {
            let number = format!("{count} image{}", if count == "1" { "" } else { "s" });
            let name = match (counts_tell && !count.is_empty(), fingerprint.as_str()) {
                (true, _) => format!("{set} [{number}]"),
                (false, "") => format!("{set} [{number}, fingerprint unknown]"),
                (false, known) => format!("{set} [{number}, {known}]"),
            };
            names.insert((named.clone(), (count.clone(), fingerprint.clone())), name);
        }
    }
    names
}

/// Returns the rows of all tables that have a column.
fn rows<'a>(tables: &'a [&mut Table], column: &'a str) -> impl Iterator<Item = (&'a Table, usize)> {
    let with = tables.iter().map(|table| &**table).filter(move |table| table.index(column).is_some());
    with.flat_map(|table| (0..table.rows.len()).map(move |row| (table, row)))
}

/// Returns the name under which a row measures. Where it measures images of other classes, their number says nothing of the set.
fn named(table: &Table, row: usize, column: &str) -> Named {
    let condition = cell(table, row, "condition");
    let foreign = if condition.starts_with(FOREIGN_CONDITION) { condition } else { "" };
    (cell(table, row, column).to_string(), foreign.to_string())
}

/// Returns the part of a set that a row measures. Each version that a publisher corrupted has images of its own; under
/// all other conditions the images are those of the test set.
fn part(table: &Table, row: usize) -> &str {
    if cell(table, row, "shift_source") == "published" { cell(table, row, "condition") } else { "" }
}

/// Returns the images of a row. `None` if the row has neither their number nor their fingerprint.
fn images(table: &Table, row: usize, columns: &ImageColumns) -> Option<Images> {
    let images = [columns.count, columns.fingerprint].map(|column| cell(table, row, column).to_string());
    let [count, fingerprint] = images;
    (!count.is_empty() || !fingerprint.is_empty()).then_some((count, fingerprint))
}

fn cell<'a>(table: &'a Table, row: usize, column: &str) -> &'a str {
    table.get(row, column).unwrap_or_default()
}

#[cfg(test)]
mod tests {
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
        distinguish(&mut [&mut table]);
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
        assert_eq!(
            shown(&[["digits", "clean", "", "", ""], ["digits", "clean", "", "797", "1f"]]),
            ["digits", "digits"]
        );
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

    // Conformal sets are measured on images of other classes, too, whose rows have the name of the run's own set.
    #[test]
    fn images_have_one_name_in_all_tables() {
        let mut results = table(&[["list", "clean", "", "170", "1f"], ["list", "clean", "", "170", "2e"]]);
        let mut conformal = table(&[["list", "clean", "", "170", "1f"], ["list", "ood svhn", "", "100", "3d"]]);
        let (mut foreign, mut more) = (Table::default(), Row::new());
        let cells =
            [("set", "list"), ("ood_set", "svhn"), ("samples", "170"), ("images", "2e"), ("ood_samples", "100")];
        cells.iter().for_each(|(column, cell)| more.push(*column, *cell));
        foreign.append(&more);
        distinguish(&mut [&mut results, &mut foreign, &mut conformal]);
        let shown =
            |table: &Table| (0..table.rows.len()).map(|row| table.get(row, "set").unwrap().to_string()).collect();
        let shown: Vec<Vec<String>> = [&results, &foreign, &conformal].map(shown).into();
        let (old, new) = ("list [170 images, 1f]", "list [170 images, 2e]");
        assert_eq!(shown, [vec![old, new], vec![new], vec![old, "list"]]);
        assert_eq!(foreign.get(0, "ood_set"), Some("svhn"));
        assert_eq!(conformal.get(0, stored_name(&conformal, "set")), Some("list"));
    }

    #[test]
    fn stored_names_stay_at_hand() {
        let mut plain = table(&[["digits", "clean", "", "797", "1f"]]);
        distinguish(&mut [&mut plain]);
        assert_eq!(stored_name(&plain, "set"), "set");
        let mut twice = table(&[["digits", "clean", "", "797", "1f"], ["digits", "clean", "", "50", "2e"]]);
        distinguish(&mut [&mut twice]);
        distinguish(&mut [&mut twice]);
        assert_eq!(twice.get(1, stored_name(&twice, "set")), Some("digits"));
        assert_eq!(twice.get(1, "set"), Some("digits [50 images]"));
    }
}
