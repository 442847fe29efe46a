//! The check that each row of a CSV file carries in its last column, so that a damaged cell is noticed, and so is a row
//! that was removed, added, doubled or moved.
//!
//! It is the row's place and the number of rows, as `2/3:`, and XXH3 (64 bits) of this text, the byte 0x1D, and the row's
//! filled cells, each as `column`, the byte 0x1F, `value` and the byte 0x1E, in the order of the columns' names. Empty
//! cells do not count, so columns may change places. The column exists in files only: it is added when a table is
//! written, and removed when it is read. Files of other programs, which lack it, are not checked.

use anyhow::{Result, bail, ensure};
use xxhash_rust::xxh3::Xxh3Default;

use crate::schema::one_line;

/// The name of the column.
pub const COLUMN: &str = "row_hash";

/// How a user makes a changed file valid.
const IF_MEANT: &str = "undo the change, or delete the column row_hash if the change is meant";

/// Returns whether a name differs from that of the column in one letter: damage that would leave all rows unchecked.
pub fn is_nearly(name: &str) -> bool {
    let differing = name.bytes().zip(COLUMN.bytes()).filter(|(one, other)| one != other).count();
    name.len() == COLUMN.len() && differing == 1
}

/// The place of a row in its file.
#[derive(Clone, Copy)]
pub struct At {
    /// The number of the row, from 1.
    pub row: usize,
    pub rows: usize,
}

/// Computes the checks of the rows of a table.
pub struct RowHash<'a> {
    columns: &'a [String],
    /// The indices of the columns, sorted by their names.
    sorted: Vec<usize>,
}

impl<'a> RowHash<'a> {
    /// `columns` are those of the table in memory, without that of the checks.
    pub fn new(columns: &'a [String]) -> Self {
        let mut sorted: Vec<usize> = (0..columns.len()).collect();
        sorted.sort_by_key(|column| &columns[*column]);
        RowHash { columns, sorted }
    }

    /// Returns the check of a row: its place and 16 hexadecimal digits.
    pub fn of<S: AsRef<str>>(&self, cells: &[S], at: At) -> String {
        let place = format!("{}/{}:", at.row, at.rows);
        let mut hash = Xxh3Default::new();
        hash.update(place.as_bytes());
        hash.update(&[0x1d]);
        for column in self.sorted.iter().copied().filter(|column| !cells[*column].as_ref().is_empty()) {
            for (text, end) in [(self.columns[column].as_str(), [0x1f]), (cells[column].as_ref(), [0x1e])] {
                hash.update(text.as_bytes());
                hash.update(&end);
            }
        }
        format!("{place}{:016x}", hash.digest())
    }

    /// Compares a row with the check that it was written with.
    ///
    /// # Errors
    /// Fails if they differ.
    pub fn check<S: AsRef<str>>(&self, cells: &[S], at: At, stored: &str) -> Result<()> {
        let found = self.of(cells, at);
        if found == stored {
            return Ok(());
        }
        if let Some((row, rows)) = place_of(stored)
            && (row, rows) != (at.row, at.rows)
            && self.of(cells, At { row, rows }) == stored
        {
            bail!(
                "the row was number {row} of {rows} when bella wrote it, and is number {} of {}: rows were removed, added or \
                 moved: {IF_MEANT}",
                at.row,
                at.rows
            );
        }
        // A damaged quote makes a cell of many lines.
        let stored = one_line(stored);
        ensure!(!stored.is_empty(), "the row was not written by bella, unlike others of the file: {IF_MEANT}");
        bail!("the row has changed since bella wrote it: its cells have the hash {found}, not {stored}: {IF_MEANT}")
    }
}

/// Returns the number of a row and the number of rows, as a check says them.
fn place_of(stored: &str) -> Option<(usize, usize)> {
    let (row, rows) = stored.split_once(':')?.0.split_once('/')?;
    Some((row.parse().ok()?, rows.parse().ok()?))
}
