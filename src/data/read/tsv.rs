//! Files of tab-separated values without quoting: a quote is a character like any other.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::base::files::put;
use crate::base::files::read_file;

/// A file of tab-separated values.
pub struct Tsv {
    path: PathBuf,
    columns: Vec<String>,
    pub rows: Vec<Row>,
}

/// A line of a file.
pub struct Row {
    /// The number of the line, from 1 on.
    pub number: usize,
    pub cells: Vec<String>,
}

impl Tsv {
    /// Reads a file. Its first line names the columns, unless `header` does. A byte order mark is skipped, and so are empty
    /// lines.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not UTF-8, or has no line besides the header.
    pub fn read(path: &Path, header: Option<&[&str]>) -> Result<Tsv> {
        let shown = path.display();
        let bytes =
            read_file(path).with_context(|| format!("{shown}: cannot open; `bella data check` says what to fetch"))?;
        let text = String::from_utf8(bytes).ok().with_context(|| format!("{shown}: is not UTF-8"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let cells = |line: &str| line.split('\t').map(str::to_string).collect::<Vec<String>>();
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.is_empty());
        let columns = match header {
            Some(names) => names.iter().map(|name| name.to_string()).collect(),
            None => cells(lines.next().with_context(|| format!("{shown}: has no line"))?.0),
        };
        let rows: Vec<Row> = lines.map(|(line, number)| Row { number, cells: cells(line) }).collect();
        ensure!(!rows.is_empty(), "{shown}: has no line of values");
        Ok(Tsv { path: path.to_path_buf(), columns, rows })
    }

    /// Returns the index of a column.
    ///
    /// # Errors
    /// Fails if there is none of this name.
    pub fn column(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|column| column == name);
        found.with_context(|| {
            format!("{}: has no column `{name}`; its columns: {}", self.path.display(), self.columns.join(", "))
        })
    }
}

/// Writes a file of rows, each a list of cells. Its first line names the columns if there is a header.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(path: &Path, header: Option<&[&str]>, rows: impl Iterator<Item = Vec<String>>) -> Result<()> {
    let header = header.map(|columns| columns.join("\t") + "\n").unwrap_or_default();
    put(path, header + &rows.map(|row| row.join("\t") + "\n").collect::<String>())
}
