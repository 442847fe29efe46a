//! CSV files with a header, read as columns by name and rows by line; and files of tab-separated values without quoting, in which a
//! quote is a character like any other.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use csv::StringRecord;

use crate::base::files::{put, read_file};
use crate::data::lines::{check_there, text_of};

/// A CSV file in memory.
pub struct Columns {
    path: PathBuf,
    header: StringRecord,
    rows: Vec<StringRecord>,
}

impl Columns {
    /// Reads `path`. Spaces around cells are removed.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not UTF-8, has other marks than commas, a quote without its pair, no row, or a row whose
    /// number of cells differs from the header's.
    pub fn read(path: &Path) -> Result<Columns> {
        let failed = || format!("{}: cannot read as CSV", path.display());
        let missing = || format!("{}: cannot open; `bella data check` says what to fetch", path.display());
        let text = String::from_utf8(read_file(path).with_context(missing)?).ok();
        let text = text.with_context(|| format!("{}: is not UTF-8: save it as UTF-8", path.display()))?;
        if let Some(line) = open_quote(&text) {
            bail!("{}:{line}: a cell begins with a quote that is never closed: close it or remove it", path.display());
        }
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let header = reader.headers().with_context(failed)?.clone();
        let whole = header.get(0).filter(|_| header.len() == 1).unwrap_or_default();
        if let Some((_, mark)) =
            [(';', "semicolons"), ('\t', "tabs")].into_iter().find(|(mark, _)| whole.contains(*mark))
        {
            bail!("{}: has {mark} between its columns: save it with commas", path.display());
        }
        let rows = reader.records().collect::<Result<Vec<_>, _>>().with_context(failed)?;
        ensure!(!rows.is_empty(), "{}: no row below the header", path.display());
        Ok(Columns { path: path.to_path_buf(), header, rows })
    }

    /// Returns the index of a column. `None` if there is no such column.
    ///
    /// # Errors
    /// Fails if there are several.
    pub fn find(&self, name: &str) -> Result<Option<usize>> {
        let mut found = self.header.iter().enumerate().filter(|(_, column)| *column == name).map(|(at, _)| at);
        let first = found.next();
        ensure!(found.next().is_none(), "{}: has several columns `{name}`: rename all but one", self.path.display());
        Ok(first)
    }

    /// Returns the index of a column.
    ///
    /// # Errors
    /// Fails if there is no such column, or if there are several.
    pub fn place(&self, name: &str) -> Result<usize> {
        self.find(name)?.with_context(|| {
            let known = self.header.iter().collect::<Vec<_>>().join(", ");
            format!("{}: no column `{name}`; its columns: {known}", self.path.display())
        })
    }

    /// Returns the index of a column that need not be there, beside the columns `others` that are read.
    ///
    /// # Errors
    /// Fails if there are two, or if there is another one whose name differs in capitals alone, which would be missed.
    pub fn find_usual(&self, name: &str, others: &[&str]) -> Result<Option<usize>> {
        let found = self.find(name)?;
        let is_missed = |column: &&str| column.eq_ignore_ascii_case(name) && !others.contains(column);
        match self.header.iter().find(|column| found.is_none() && is_missed(column)) {
            Some(other) => bail!(
                "{}: its column `{other}` would not be read: name it `{name}` if that is meant, or else otherwise",
                self.path.display()
            ),
            None => Ok(found),
        }
    }

    /// Returns every row with its place in the file, such as `metadata.csv:12`, for messages.
    pub fn rows(&self) -> impl Iterator<Item = (Place<'_>, &StringRecord)> {
        self.rows.iter().map(|row| (Place { path: &self.path, row }, row))
    }
}

/// Returns the line in which a quoted cell begins that does not end; `None` if there is none. The rows behind such a quote would
/// silently be a part of the cell.
fn open_quote(text: &str) -> Option<usize> {
    /// A cell that is being read; those with quotes have the line of the first one.
    enum Cell {
        Start,
        Plain,
        Quoted(usize),
        Closed(usize),
    }
    let (mut cell, mut line) = (Cell::Start, 1);
    for letter in text.trim_start_matches('\u{feff}').bytes() {
        cell = match (cell, letter) {
            (Cell::Start, b'"') => Cell::Quoted(line),
            (Cell::Quoted(from), b'"') => Cell::Closed(from),
            // Two quotes are one in the cell.
            (Cell::Closed(from), b'"') | (Cell::Quoted(from), _) => Cell::Quoted(from),
            (_, b',' | b'\n' | b'\r') => Cell::Start,
            _ => Cell::Plain,
        };
        line += usize::from(letter == b'\n');
    }
    if let Cell::Quoted(from) = cell { Some(from) } else { None }
}

/// The place of a row in its file.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    path: &'a Path,
    row: &'a StringRecord,
}

impl Place<'_> {
    /// Returns the whole number in a cell of the row, which is of the column `name`.
    ///
    /// # Errors
    /// Fails if it is none.
    pub fn number(self, name: &str, cell: &str) -> Result<u32> {
        cell.parse().ok().with_context(|| format!("{self}: {name} = `{cell}`, but it is a whole number"))
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.row.position().map_or(0, csv::Position::line);
        write!(f, "{}:{line}", self.path.display())
    }
}

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
        check_there(path)?;
        let text = text_of(path)?;
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
pub fn write_tsv(path: &Path, header: Option<&[&str]>, rows: impl Iterator<Item = Vec<String>>) -> Result<()> {
    let header = header.map(|columns| columns.join("\t") + "\n").unwrap_or_default();
    put(path, header + &rows.map(|row| row.join("\t") + "\n").collect::<String>())
}
