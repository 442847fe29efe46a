//! A CSV file that collects one row per run, test set and condition. Columns may be added later: the header becomes the
//! union of all columns, and older rows have empty cells. No row is lost, because every change rewrites the file
//! atomically under a lock that other processes respect.

mod row_hash;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use self::row_hash::{At, RowHash};
use crate::base::files::{read_file, with_lock, write_atomic};
use crate::base::outside::{csv_cell, of_csv_cell, printable};

const WAY_OUT: &str = "mend the file or move it away";

/// One row to be stored, as pairs of column and value. New columns are added in this order. An empty value is an empty
/// cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    cells: Vec<(String, String)>,
}

impl Row {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, column: impl Into<String>, value: impl Into<String>) {
        self.cells.push((column.into(), value.into()));
    }

    /// Adds a number with all its digits, so that it reads back to the same f64. `None` adds an empty cell.
    pub fn push_number(&mut self, column: impl Into<String>, value: Option<f64>) {
        self.push(column, value.map(|number| number.to_string()).unwrap_or_default());
    }

    pub fn cells(&self) -> &[(String, String)] {
        &self.cells
    }

    pub fn get(&self, column: &str) -> Option<&str> {
        self.cells.iter().find(|(name, _)| name == column).map(|(_, value)| value.as_str())
    }
}

/// The cells that decide whether two rows measure the same thing.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The columns that must be equal.
    pub keys: &'a [&'a str],
    /// The sets of images that must be the same.
    pub images: &'a [ImageColumns],
    /// Returns whether the old row and the new one come from the same predictions. The new row then keeps the cells of the
    /// old one that it does not compute. `None` if a row is always replaced as a whole.
    pub keeps: Option<fn(&Row, &Row) -> bool>,
}

/// The two columns that identify the images of a row.
#[derive(Clone, Copy, Debug)]
pub struct ImageColumns {
    /// The fingerprint of the images.
    pub fingerprint: &'static str,
    /// The number of images.
    pub count: &'static str,
}

/// A whole CSV file as text. Every row has one cell per column, empty if there is no value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table without rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        Table { columns: columns.into_iter().map(String::from).collect(), rows: Vec::new() }
    }

    /// Returns the first row with these cells.
    pub fn find(&self, cells: &[(&str, String)]) -> Option<Row> {
        let fits = |row: &usize| cells.iter().all(|(column, value)| self.get(*row, column) == Some(value));
        (0..self.rows.len()).find(fits).map(|place| self.row(place))
    }

    /// Returns the table as it may be shown on a terminal.
    pub fn printable(&self) -> Table {
        let shown = |cells: &Vec<String>| cells.iter().map(|cell| printable(cell).into_owned()).collect();
        Table { columns: self.columns.clone(), rows: self.rows.iter().map(shown).collect() }
    }

    /// Returns the index of a column.
    pub fn index(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }

    /// Returns a cell. `None` if there is no such column or row.
    pub fn get(&self, row: usize, column: &str) -> Option<&str> {
        Some(self.rows.get(row)?.get(self.index(column)?)?.as_str())
    }

    /// Returns the indices of several columns, for [`Table::cell`].
    pub fn places<'a>(&self, columns: impl IntoIterator<Item = &'a str>) -> Vec<Option<usize>> {
        columns.into_iter().map(|column| self.index(column)).collect()
    }

    /// Returns the cell of a row in a column whose index is known. Empty if there is no such column.
    pub fn cell(&self, row: usize, place: Option<usize>) -> &str {
        place.map_or("", |place| &self.rows[row][place])
    }

    /// Adds all rows of another table at the end. Columns that this table lacks are appended, with empty cells in older
    /// rows.
    pub fn extend(&mut self, other: Table) {
        let places: Vec<usize> = other.columns.iter().map(|column| self.add_column(column)).collect();
        let is_same = places.iter().copied().eq(0..self.columns.len());
        if is_same {
            self.rows.extend(other.rows);
            return;
        }
        for row in other.rows {
            let mut cells = vec![String::new(); self.columns.len()];
            places.iter().zip(row).for_each(|(place, value)| cells[*place] = value);
            self.rows.push(cells);
        }
    }

    /// Returns the index of a column, which is appended if the table lacks it.
    pub fn add_column(&mut self, column: &str) -> usize {
        self.index(column).unwrap_or_else(|| {
            self.columns.push(column.to_string());
            self.rows.iter_mut().for_each(|cells| cells.push(String::new()));
            self.columns.len() - 1
        })
    }

    /// Adds `row` at the end. Its new columns are appended, with empty cells in older rows.
    pub fn append(&mut self, row: &Row) {
        let cells = self.align(row);
        self.rows.push(cells);
    }

    /// Replaces the row that measures the same as `row` and returns it, or adds `row` at the end if there is none. None of
    /// the old row's cells survive in columns that `row` lacks, unless [`Identity::keeps`] says that both rows agree.
    pub fn upsert(&mut self, row: &Row, identity: &Identity) -> Option<Row> {
        let cells = self.align(row);
        let equal = |old: &[String], column: &str| self.index(column).is_none_or(|at| old[at] == cells[at]);
        let fingerprints = identity.images.iter().map(|images| images.fingerprint);
        let same = |old: &Vec<String>| identity.keys.iter().copied().chain(fingerprints.clone()).all(|c| equal(old, c));
        match self.rows.iter().position(same) {
            Some(place) => {
                let replaced = self.row(place);
                let mut cells = cells;
                if identity.keeps.is_some_and(|agree| agree(&replaced, row)) {
                    let empty = cells.iter_mut().zip(&self.rows[place]).filter(|(cell, _)| cell.is_empty());
                    empty.for_each(|(cell, old)| cell.clone_from(old));
                }
                self.rows[place] = cells;
                Some(replaced)
            }
            None => {
                self.rows.push(cells);
                None
            }
        }
    }

    /// Returns the row at `place`, with the names of its columns.
    fn row(&self, place: usize) -> Row {
        let mut row = Row::new();
        self.columns.iter().zip(&self.rows[place]).for_each(|(column, value)| row.push(column, value));
        row
    }

    /// Returns the cells of `row` in the order of the table's columns. Columns that the table lacks are added first.
    fn align(&mut self, row: &Row) -> Vec<String> {
        let places: Vec<usize> = row.cells.iter().map(|(column, _)| self.add_column(column)).collect();
        let mut cells = vec![String::new(); self.columns.len()];
        // The first of two cells of one column counts, as in `Row::get`.
        places.iter().zip(&row.cells).rev().for_each(|(place, (_, value))| cells[*place].clone_from(value));
        cells
    }
}

/// Reads a CSV file with a header.
///
/// # Errors
/// Fails, naming the file and the line, if the file is missing or is not UTF-8, a row has the wrong number of cells or
/// differs from its hash, a quote is not closed, or a column is repeated or has no name.
pub fn read(path: &Path) -> Result<Table> {
    Ok(parse(path).with_context(|| format!("results file {}", path.display()))?.table)
}

/// Reads a CSV file that only bella writes.
///
/// # Errors
/// Fails as [`read`] does, and also if the rows do not carry their hashes.
pub fn read_own(path: &Path) -> Result<Table> {
    let parsed = parse(path).with_context(|| format!("results file {}", path.display()))?;
    ensure!(
        parsed.is_checked,
        "results file {}: has no column {}, which bella wrote with it: put the file back as it was",
        path.display(),
        row_hash::COLUMN
    );
    Ok(parsed.table)
}

/// Adds `row` to the CSV file at `path`, which is created if it does not exist, or replaces the row with the same
/// values in all `keys`. `row` must have these columns, and the folder must exist.
///
/// # Errors
/// Fails if the CSV file is damaged (the message names the line), a column is given twice, or the disk is full. The
/// file is then left unchanged.
pub fn upsert_row(path: &Path, row: &Row, keys: &[&str]) -> Result<()> {
    upsert_measurement(path, row, &Identity { keys, images: &[], keeps: None }).map(drop)
}

/// Stores `row` like [`upsert_row`], but replaces only a row that measures the same images. Returns the replaced row.
pub fn upsert_measurement(path: &Path, row: &Row, identity: &Identity) -> Result<Option<Row>> {
    ensure!(!identity.keys.is_empty(), "results row: no key columns to find the row to replace");
    let of_images = identity.images.iter().flat_map(|images| [images.fingerprint, images.count]);
    for key in identity.keys.iter().copied().chain(of_images) {
        ensure!(row.get(key).is_some(), "results row: has no key column `{key}`");
    }
    check_columns(row.cells.iter().map(|(column, _)| column.as_str())).context("results row")?;
    with_lock(path, || {
        let mut table = if path.try_exists()? { read(path)? } else { Table::default() };
        let replaced = table.upsert(row, identity);
        write(path, &table)?;
        Ok(replaced)
    })
}

/// Stores the `rows` of one measurement, which are equal in the cells of `identity`, in place of all earlier rows of the
/// same measurement. There may have been more or fewer of these.
///
/// # Errors
/// Fails if the CSV file is damaged (the message names the line), a row lacks a key column or has a column twice, or the
/// disk is full. The file is then left unchanged.
pub fn replace_measurement(path: &Path, rows: &[Row], identity: &Identity) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    for row in rows {
        check_columns(row.cells.iter().map(|(column, _)| column.as_str())).context("results row")?;
    }
    let fingerprints = identity.images.iter().map(|images| images.fingerprint);
    let keys: Vec<&str> = identity.keys.iter().copied().chain(fingerprints).collect();
    for key in &keys {
        ensure!(first.get(key).is_some(), "results row: has no key column `{key}`");
    }
    with_lock(path, || {
        let mut table = if path.try_exists()? { read(path)? } else { Table::default() };
        let same: Vec<bool> = (0..table.rows.len())
            .map(|row| {
                keys.iter().all(|key| table.get(row, key).unwrap_or_default() == first.get(key).unwrap_or_default())
            })
            .collect();
        let mut same = same.into_iter();
        table.rows.retain(|_| !same.next().unwrap_or(false));
        rows.iter().for_each(|row| table.append(row));
        write(path, &table)
    })
}

/// Removes the rows with `value` in `column`, and the file if it has no others.
///
/// # Errors
/// Fails if the CSV file is damaged (the message names the line), or if it cannot be written.
pub fn remove_rows(path: &Path, column: &str, value: &str) -> Result<()> {
    with_lock(path, || {
        let mut table = read(path)?;
        let Some(place) = table.index(column) else { return Ok(()) };
        table.rows.retain(|cells| cells[place] != value);
        match table.rows.is_empty() {
            true => std::fs::remove_file(path).with_context(|| format!("{}: cannot remove", path.display())),
            false => write(path, &table),
        }
    })
}

/// Writes a whole CSV file atomically, with the hash of each row in the last column.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(path: &Path, table: &Table) -> Result<()> {
    let hash = RowHash::new(&table.columns);
    write_atomic(path, |writer| {
        let mut csv = csv::Writer::from_writer(writer);
        csv.write_record(table.columns.iter().map(String::as_str).chain([row_hash::COLUMN]))?;
        for (place, cells) in table.rows.iter().enumerate() {
            let check = hash.of(cells, At { row: place + 1, rows: table.rows.len() });
            csv.write_record(cells.iter().map(|cell| csv_cell(cell)).chain([check.into()]).map(Cow::into_owned))?;
        }
        Ok(csv.flush()?)
    })
}

/// A file's table, and whether its rows carry hashes.
struct Parsed {
    table: Table,
    is_checked: bool,
}

fn parse(path: &Path) -> Result<Parsed> {
    let bytes = read_file(path)?;
    let mut csv = csv::Reader::from_reader(bytes.as_slice());
    let header = csv.headers().context("line 1")?;
    let mut columns: Vec<String> = header.iter().map(String::from).collect();
    check_columns(columns.iter().map(String::as_str)).context("line 1")?;
    if let Some(damaged) = columns.iter().find(|column| row_hash::is_nearly(column)) {
        bail!("line 1: column `{damaged}` was {} when bella wrote it; {WAY_OUT}", row_hash::COLUMN);
    }
    let hash_column = columns.iter().position(|column| column == row_hash::COLUMN);
    hash_column.map(|column| columns.remove(column));
    let (mut rows, mut checks, mut last_line) = (vec![], vec![], 1);
    for record in csv.records() {
        match record {
            Ok(record) => {
                last_line = record.position().map_or(last_line, csv::Position::line);
                let mut cells: Vec<String> = record.iter().map(|cell| of_csv_cell(cell).to_string()).collect();
                checks.extend(hash_column.map(|column| (last_line, cells.remove(column))));
                rows.push(cells);
            }
            Err(error) => bail!("line {}: {}; {WAY_OUT}", line_of(&error), reason(&error)),
        }
    }
    // The reader takes an unclosed quote up to the end of the file, including all rows below it.
    let quotes = bytes.iter().filter(|byte| **byte == b'"').count();
    ensure!(quotes % 2 == 0, "line {last_line}: a quote that is never closed; {WAY_OUT}");
    let hash = RowHash::new(&columns);
    for (place, (line, stored)) in checks.iter().enumerate() {
        let at = At { row: place + 1, rows: rows.len() };
        hash.check(&rows[place], at, stored).with_context(|| format!("line {line}"))?;
    }
    let is_checked = hash_column.is_some();
    ensure!(
        !is_checked || columns.is_empty() || !rows.is_empty(),
        "all of its rows were removed since bella wrote it; {WAY_OUT}"
    );
    Ok(Parsed { table: Table { columns, rows }, is_checked })
}

fn check_columns<'a>(columns: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for column in columns {
        ensure!(!column.is_empty(), "a column has no name");
        ensure!(seen.insert(column), "column `{column}` appears twice");
    }
    Ok(())
}

fn line_of(error: &csv::Error) -> String {
    error.position().map_or("?".to_string(), |position| position.line().to_string())
}

fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} cells where the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "not UTF-8 text".to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
