//! Which images a row of results measures. Rows of one test set that measure different images get names of their own, so
//! that no table, figure or mean over seeds takes them for one.

use std::collections::{BTreeMap, BTreeSet};

use super::store::{ImageColumns, Table};

/// The test set of a row.
pub const TESTED: ImageColumns = ImageColumns { fingerprint: "images", count: "samples" };

/// The foreign set of an out-of-distribution row.
pub const FOREIGN: ImageColumns = ImageColumns { fingerprint: "ood_images", count: "ood_samples" };

/// The name of a set as the row was stored, where the cell has been given a name of its own.
const STORED: &[(&str, &str)] = &[("set", "stored_set"), ("ood_set", "stored_ood_set")];

/// Images by their number and fingerprint, as cells.
type Images = (String, String);

/// Gives every set name that stands for different images a name per image set: `digits [797 images]` and
/// `digits [50 images]`, with the fingerprint where the numbers are equal. A row without a fingerprint counts as of the
/// images of other rows of its set where those of its number are unique.
pub fn distinguish(table: &mut Table) {
    for (column, images) in [("set", TESTED), ("ood_set", FOREIGN)] {
        distinguish_sets(table, column, &images);
    }
}

/// The column that holds the stored name of a set, `set` or `ood_set`.
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
    add_column(table, stored);
    if let (Some(shown), Some(stored)) = (table.index(column), table.index(stored)) {
        table.rows.iter_mut().filter(|row| row[stored].is_empty()).for_each(|row| row[stored] = row[shown].clone());
        renamed.into_iter().for_each(|(row, name)| table.rows[row][shown] = name);
    }
}

/// Fills the fingerprints of rows that are older than the column.
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

/// Names of their own for the images of those sets whose rows measure different ones.
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

/// Versions that a publisher corrupted are image sets of their own; in all other conditions the images are those of the
/// test set.
fn part(table: &Table, row: usize) -> &str {
    if cell(table, row, "shift_source") == "published" { cell(table, row, "condition") } else { "" }
}

/// `None` where the row says nothing of its images.
fn images(table: &Table, row: usize, columns: &ImageColumns) -> Option<Images> {
    let images = [columns.count, columns.fingerprint].map(|column| cell(table, row, column).to_string());
    let [count, fingerprint] = images;
    (!count.is_empty() || !fingerprint.is_empty()).then_some((count, fingerprint))
}

fn cell<'a>(table: &'a Table, row: usize, column: &str) -> &'a str {
    table.get(row, column).unwrap_or_default()
}

fn add_column(table: &mut Table, column: &str) {
    if table.index(column).is_none() {
        table.columns.push(column.to_string());
        table.rows.iter_mut().for_each(|row| row.push(String::new()));
    }
}

#[cfg(test)]
mod tests;
