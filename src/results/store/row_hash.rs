//! The hash that each row of a CSV file carries in its last column, so that a damaged cell is noticed.
//!
//! It is XXH3 (64 bits) of the row's filled cells, each as `column`, the byte 0x1F, `value` and the byte 0x1E, in the
//! order of the columns' names. Empty cells do not count, so a row keeps its hash when other rows add columns, and when
//! columns change places. The column exists in files only: it is added when a table is written, and removed when it is
//! read. Rows without a hash, from earlier versions or other programs, are not checked.

use anyhow::{Result, ensure};
use xxhash_rust::xxh3::Xxh3Default;

use crate::schema::one_line;

/// The name of the column.
pub const COLUMN: &str = "row_hash";

/// Returns whether a name differs from that of the column in one letter: damage that would leave all rows unchecked.
pub fn is_nearly(name: &str) -> bool {
    let differing = name.bytes().zip(COLUMN.bytes()).filter(|(one, other)| one != other).count();
    name.len() == COLUMN.len() && differing == 1
}

/// Computes the hashes of the rows of a table.
pub struct RowHash<'a> {
    columns: &'a [String],
    /// The indices of the columns, sorted by their names.
    sorted: Vec<usize>,
}

impl<'a> RowHash<'a> {
    /// `columns` are those of the table in memory, without that of the hashes.
    pub fn new(columns: &'a [String]) -> Self {
        let mut sorted: Vec<usize> = (0..columns.len()).collect();
        sorted.sort_by_key(|column| &columns[*column]);
        RowHash { columns, sorted }
    }

    /// Returns the hash of a row as 16 hexadecimal digits.
    pub fn of<S: AsRef<str>>(&self, cells: &[S]) -> String {
        let mut hash = Xxh3Default::new();
        for column in self.sorted.iter().copied().filter(|column| !cells[*column].as_ref().is_empty()) {
            for (text, end) in [(self.columns[column].as_str(), [0x1f]), (cells[column].as_ref(), [0x1e])] {
                hash.update(text.as_bytes());
                hash.update(&end);
            }
        }
        format!("{:016x}", hash.digest())
    }

    /// Compares a row with the hash that it was written with.
    ///
    /// # Errors
    /// Fails if they differ. An empty `stored` is not checked.
    pub fn check<S: AsRef<str>>(&self, cells: &[S], stored: &str) -> Result<()> {
        let found = self.of(cells);
        ensure!(
            stored.is_empty() || found == stored,
            "the row has changed since bella wrote it: its cells have the hash {found}, not {}: undo the change, or \
             delete the column {COLUMN} if the change is meant",
            // A damaged quote makes a cell of many lines.
            one_line(stored)
        );
        Ok(())
    }
}
