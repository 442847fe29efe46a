//! Files of JSON lines: one table a line, read by keys.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::numbers::{finite, number};
use crate::base::files::put;
use crate::base::files::read_file;

/// A line of a file.
pub struct Line {
    path: PathBuf,
    number: usize,
    table: Value,
}

/// The largest number of bytes of a line. A text of a million letters is longer than the context of any network, and its tokens
/// take thirty times its memory.
const LONGEST: usize = 4 << 20;

/// Reads all lines of a file of a data set.
///
/// # Errors
/// Fails as [`read_lines`] does; if the file is missing, the message names the command that says what to fetch.
pub fn set_lines(path: &Path) -> Result<Vec<Line>> {
    check_there(path)?;
    read_lines(path)
}

/// Checks that a file of a data set is there.
///
/// # Errors
/// Fails if it is not, with the command that says what to fetch.
pub(in crate::data) fn check_there(path: &Path) -> Result<()> {
    let shown = path.display();
    ensure!(path.exists(), "{shown}: cannot open: there is no such file; `bella data check` says what to fetch");
    Ok(())
}

/// Returns the text of a file, without the byte order mark that some programs put in front of it.
///
/// # Errors
/// Fails if the file cannot be read, or if it is not UTF-8.
pub(in crate::data) fn text_of(path: &Path) -> Result<String> {
    let shown = path.display();
    let bytes = read_file(path).with_context(|| format!("{shown}: cannot open"))?;
    let text = String::from_utf8(bytes).ok().with_context(|| format!("{shown}: is not UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

/// Reads all lines of a file. Empty lines are skipped.
///
/// # Errors
/// Fails if the file cannot be read, if it has no line, or if a line is too long or no JSON table.
pub fn read_lines(path: &Path) -> Result<Vec<Line>> {
    let shown = path.display();
    let text = text_of(path)?;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (number, bytes) = (at + 1, line.len());
        ensure!(
            bytes <= LONGEST,
            "{shown}:{number}: has {bytes} bytes, more than the {LONGEST} of a line: divide the text"
        );
        let table = serde_json::from_str(line).with_context(|| {
            // Python's json writes them.
            let written = ["NaN", "Infinity"].into_iter().find(|word| line.contains(word));
            let why = written.map_or_else(String::new, |word| format!(" (which has no {word})"));
            format!("{shown}:{}: no JSON{why}", at + 1)
        })?;
        let line = Line { path: path.to_path_buf(), number: at + 1, table };
        ensure!(line.table.is_object(), "{line}: no table of keys and values");
        lines.push(line);
    }
    ensure!(!lines.is_empty(), "{shown}: has no line");
    Ok(lines)
}

/// Writes a file of tables.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_lines(path: &Path, tables: impl Iterator<Item = Value>) -> Result<()> {
    put(path, tables.map(|table| format!("{table}\n")).collect::<String>())
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.number)
    }
}

impl Line {
    /// Returns the line that a row of a table is; rows count from 0.
    pub(super) fn of_row(path: &Path, row: usize, table: Value) -> Line {
        Line { path: path.to_path_buf(), number: row + 1, table }
    }

    /// Returns the keys and values.
    pub fn table(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.table.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the value at a key; `None` if it is absent or null. Dots lead into tables: `question.stem`.
    pub fn find(&self, key: &str) -> Option<&Value> {
        self.at(key).filter(|value| !value.is_null())
    }

    fn at(&self, key: &str) -> Option<&Value> {
        self.table.get(key).or_else(|| key.split('.').try_fold(&self.table, |table, part| table.get(part)))
    }

    /// Returns the file that a key names, which is relative to the folder of the lines.
    ///
    /// # Errors
    /// Fails if the line has no such key, or if its value is no text.
    pub fn file(&self, key: &str) -> Result<PathBuf> {
        Ok(self.path.parent().unwrap_or(Path::new("")).join(self.text(key)?))
    }

    /// Returns the value at a key.
    ///
    /// # Errors
    /// Fails if there is none, or if it is null.
    pub fn get(&self, key: &str) -> Result<&Value> {
        self.find(key).with_context(|| {
            if self.at(key).is_some() {
                return format!(
                    "{self}: `{key}` is null, which a NaN of a table is, too: give it a value, or leave the sample out"
                );
            }
            let known: Vec<&str> = self.table().map(|(key, _)| key).collect();
            format!("{self}: has no key `{key}`; its keys: {}", known.join(", "))
        })
    }

    /// Returns the number at a key, where a text that writes a number counts as one.
    ///
    /// # Errors
    /// Fails if there is none, or if it is not finite in f32, in which networks compute.
    pub fn number(&self, key: &str) -> Result<f64> {
        match self.get(key)?.as_f64() {
            Some(value) => finite(value, key, self),
            None if self.get(key)?.is_array() || self.get(key)?.is_object() => {
                anyhow::bail!(
                    "{self}: `{key}` is {}, which is no number: correct it, or leave the sample out",
                    self.get(key)?
                )
            }
            None => number(&self.text(key)?, key, self),
        }
    }

    /// Returns the text at a key, where a number or a truth value is written out.
    ///
    /// # Errors
    /// Fails if there is none, or if it is a list or a table.
    pub fn text(&self, key: &str) -> Result<String> {
        match self.get(key)? {
            Value::String(text) => Ok(text.clone()),
            value @ (Value::Number(_) | Value::Bool(_)) => Ok(value.to_string()),
            _ => anyhow::bail!("{self}: `{key}` must be a text"),
        }
    }
}
