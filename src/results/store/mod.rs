//! A CSV file that collects one row per run, test set and condition. Columns may be added later: the header becomes the
//! union of all columns, and older rows have empty cells. No row is lost, because every change rewrites the file
//! atomically under a lock that other processes respect.

mod row_hash;
mod table;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use self::row_hash::{At, RowHash};
use crate::base::files::{read_file, with_lock, write_atomic};
use crate::base::outside::{csv_cell, of_csv_cell};

pub use table::{Identity, ImageColumns, Row, Table};

const WAY_OUT: &str = "mend the file or move it away";

/// Reads a CSV file with a header.
///
/// # Errors
/// Fails, naming the file and the line, if the file is missing or is not UTF-8, a row has the wrong number of cells or
/// differs from its hash, a quote is not closed, or a column is repeated or has no name.
pub fn read(path: &Path) -> Result<Table> {
    Ok(parsed(path)?.table)
}

/// Reads a CSV file as [`read`] does, and says what speaks for its rows.
///
/// # Errors
/// Fails as [`read`] does.
pub fn parsed(path: &Path) -> Result<Parsed> {
    parse(path).with_context(|| format!("results file {}", path.display()))
}

/// Reads a CSV file that only bella writes.
///
/// # Errors
/// Fails as [`read`] does, and also if the rows do not carry their hashes.
pub fn read_own(path: &Path) -> Result<Table> {
    let parsed = parsed(path)?;
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
    check_columns(row.cells().iter().map(|(column, _)| column.as_str())).context("results row")?;
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
        check_columns(row.cells().iter().map(|(column, _)| column.as_str())).context("results row")?;
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

/// A file's table, and what speaks for its rows.
pub struct Parsed {
    pub table: Table,
    /// Whether the rows carry hashes, which they fit.
    is_checked: bool,
    /// Whether the file may have been cut off within its last row, whose last number may lack digits: it does not end in a line
    /// break, and the row carries no hash.
    pub is_torn: bool,
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
    let is_torn = !is_checked && bytes.last().is_some_and(|byte| *byte != b'\n');
    Ok(Parsed { table: Table { columns, rows }, is_checked, is_torn })
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
