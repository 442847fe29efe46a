//! Distinguishes rows by the images they measure. If rows of one test set measure different images, each set of images
//! gets a name of its own, so that no table, figure or mean over seeds mixes them.

use std::collections::{BTreeMap, BTreeSet};

use super::store::{ImageColumns, Table};

/// The columns for the images of a row's test set.
pub const TESTED: ImageColumns = ImageColumns { fingerprint: "images", count: "samples" };

/// The columns for the images of the foreign set in an out-of-distribution row.
pub const FOREIGN: ImageColumns = ImageColumns { fingerprint: "ood_images", count: "ood_samples" };

/// The columns that keep the stored name of a set when `set` or `ood_set` is renamed.
const STORED: &[(&str, &str)] = &[("set", "stored_set"), ("ood_set", "stored_ood_set")];

/// The number and the fingerprint of a set of images, as cells.
type Images = (String, String);

/// Renames every set whose rows measure different images, with one name per set of images: `digits [797 images]` and
/// `digits [50 images]`. If two of them have the same number of images, the names carry the fingerprints. A row without
/// a fingerprint takes that of other rows with the same set and number of images, if it is unique.
pub fn distinguish(table: &mut Table) {
    for (column, images) in [("set", TESTED), ("ood_set", FOREIGN)] {
        distinguish_sets(table, column, &images);
    }
}

/// Returns the column that holds the stored name of a set. `column` is `set` or `ood_set`.
pub fn stored_name(table: &Table, column: &'static str) -> &'static str {
    let stored = STORED.iter().find(|(shown, _)| *shown == column).map(|(_, stored)| *stored);
    stored.filter(|stored| table.index(stored).is_some()).unwrap_or(column)
}

fn distinguish_sets(table: &mut Table, column: &'static str, columns: &ImageColumns) {
    if table.index(column).is_none() {
        return;
    }
    adopt_fingerprints(table, column, columns);
    let names = names(table, column, columns);
    let renamed: Vec<(usize, String)> = (0..table.rows.len())
        .filter_map(|row| {
            let (name, images) = (cell(table, row, column).to_string(), images(table, row, columns)?);
            names.get(&(name, images)).map(|name| (row, name.clone()))
        })
        .collect();
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
fn adopt_fingerprints(table: &mut Table, column: &str, columns: &ImageColumns) {
    let Some(fingerprint) = table.index(columns.fingerprint) else { return };
    let key = |row: usize| [cell(table, row, column), part(table, row), cell(table, row, columns.count)];
    let mut known: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for row in (0..table.rows.len()).filter(|row| !table.rows[*row][fingerprint].is_empty()) {
        known.entry(key(row)).or_default().insert(&table.rows[row][fingerprint]);
    }
    let only = |row: usize| known.get(&key(row)).filter(|all| all.len() == 1).and_then(|all| all.first());
    let older = (0..table.rows.len()).filter(|row| table.rows[*row][fingerprint].is_empty());
    let found: Vec<(usize, String)> = older.filter_map(|row| Some((row, only(row)?.to_string()))).collect();
    found.into_iter().for_each(|(row, value)| table.rows[row][fingerprint] = value);
}

/// Returns the new names for the images of those sets whose rows measure different ones.
fn names(table: &Table, column: &str, columns: &ImageColumns) -> BTreeMap<(String, Images), String> {
    let mut sets: BTreeMap<&str, BTreeMap<&str, BTreeSet<Images>>> = BTreeMap::new();
    for row in 0..table.rows.len() {
        if let Some(images) = images(table, row, columns) {
            sets.entry(cell(table, row, column)).or_default().entry(part(table, row)).or_default().insert(images);
        }
    }
    let mut names = BTreeMap::new();
    for (set, parts) in sets.iter().filter(|(_, parts)| parts.values().any(|images| images.len() > 1)) {
        let counts = |images: &BTreeSet<Images>| images.iter().map(|(count, _)| count).collect::<BTreeSet<_>>().len();
        let counts_tell = parts.values().all(|images| counts(images) == images.len());
        for (count, fingerprint) in parts.values().flatten() {
            let number = format!("{count} image{}", if count == "1" { "" } else { "s" });
            let name = match (counts_tell && !count.is_empty(), fingerprint.as_str()) {
                (true, _) => format!("{set} [{number}]"),
                (false, "") => format!("{set} [{number}, fingerprint unknown]"),
                (false, known) => format!("{set} [{number}, {known}]"),
            };
            names.insert((set.to_string(), (count.clone(), fingerprint.clone())), name);
        }
    }
    names
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
}
