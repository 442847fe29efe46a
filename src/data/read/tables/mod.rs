//! Splits read from tables in Parquet: images that become a [`Listing`], lines of texts, labels by name or number, groups.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::image_files::{ImageFiles, Listing, some};
use super::known::Known;
use super::splits::{Wanted, splits};
use crate::data::lines::{Line, set_lines};
use crate::data::stored::{Member, Members};
use crate::data::table::{Kind, Rows, Table};
use crate::data::{Hub, Inputs, Request, Resize, Split, SplitName, Subset};
use crate::hub::data_folder;
use crate::schema::Choice;

/// The tables of one split, in order.
pub struct Tables(Vec<Table>);

/// The meaning of the numbers in a column of labels.
#[derive(Clone, Copy)]
pub enum Numbers<'a> {
    /// The classes that the footer names, which must be these.
    Named(&'a [String]),
    /// The same, where the footer spells some otherwise: as it does, and as the classes are called.
    Respelled(&'a [String], &'static [(&'static str, &'static str)]),
    /// Classes whose names are others in the footer; their order is the same.
    Ordered(&'a [String]),
}

/// A split whose images all have the same size.
#[derive(Clone, Copy)]
pub struct PackedSplit<'a> {
    /// The key of its data set.
    pub key: &'static str,
    pub root: &'a Path,
    pub split: SplitName,
    pub subset: Option<Subset>,
    pub classes: Numbers<'a>,
    /// The number of pixels per side of every image.
    pub side: usize,
}

impl Hub {
    /// Opens the tables of a split of this form; `None` if the folder is not in it.
    ///
    /// # Errors
    /// Fails if a table is missing or damaged, or if there are tables and none of this split.
    pub fn open(&self, root: &Path, split: SplitName) -> Result<Option<Tables>> {
        let name = self.splits.iter().find(|(known, _)| *known == split).map_or(split.word(), |(_, name)| name);
        Tables::open(root, Wanted::Published(self.config), name)
    }

    /// Returns the images of a split with their labels; `None` if the folder is not in this form.
    ///
    /// # Errors
    /// Fails if a table lacks a column, or if a label is none of the classes.
    pub fn listing(&self, root: &Path, split: SplitName, classes: Numbers) -> Result<Option<Listing>> {
        let Some(tables) = self.open(root, split)? else { return Ok(None) };
        let labels = tables.labels(self.label, classes)?;
        tables.listing(self.image, labels).map(Some)
    }

    /// Returns a split of images that are all of `side` by `side` pixels, in memory as those of the original files; `None` if the
    /// folder is not in this form.
    ///
    /// # Errors
    /// Fails if a table lacks a column, if a label is none of the classes, or if an image has another size.
    pub fn packed(
        &self,
        PackedSplit { key, root, split, subset, classes, side }: PackedSplit,
        request: &Request,
    ) -> Result<Option<Split>> {
        let Some(listing) = self.listing(root, split, classes)? else { return Ok(None) };
        let files = ImageFiles::whole(key, Resize::None).with_subset(subset);
        let whole = Request { memory_bytes: usize::MAX, cache: None, ..*request };
        let found = files.load(listing, split, &whole)?;
        let (height, width) = found.inputs.size();
        ensure!(
            (height, width) == (side, side) && matches!(found.inputs, Inputs::Packed(_)),
            "{}: has images of {width} x {height} pixels, and those of {key} have {side} x {side}: name the root of {key}",
            root.display()
        );
        Ok(Some(Split { decoded_from: None, ..found }))
    }
}

/// Columns of the tables of a split.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// The configuration of the tables.
    pub config: &'a str,
    /// The name of the split there.
    pub split: &'a str,
    pub names: &'a [&'a str],
}

/// Returns the lines of a split: the rows of the Hub's tables of a configuration, or the lines of a file of JSON.
///
/// # Errors
/// Fails if tables or lines cannot be read.
pub fn lines(root: &Path, columns: Columns, file: &Path) -> Result<Vec<Line>> {
    match Tables::open(root, Wanted::Part(columns.config), columns.split)? {
        Some(tables) => tables.lines(columns.names),
        None => set_lines(file),
    }
}

impl Tables {
    /// Opens the tables of the split `name` of a configuration; `None` if the folder has no tables of it.
    ///
    /// # Errors
    /// Fails if a table is missing or damaged, or if there are tables and none of this split.
    pub fn open(root: &Path, config: Wanted, name: &str) -> Result<Option<Tables>> {
        let Some(mut found) = splits(root, config)? else { return Ok(None) };
        let known = || found.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let wrong = || format!("{}: has no table of the split `{name}`; its splits: {}", root.display(), known());
        ensure!(found.contains_key(name), wrong());
        let paths = found.remove(name).unwrap_or_default();
        let folder = data_folder(root, &|_| paths.clone())?;
        let tables: Vec<Table> = paths.iter().map(|path| Table::open(&folder.join(path))).collect::<Result<_>>()?;
        ensure!(tables.iter().any(|table| table.rows() > 0), "{}: the split `{name}` has no row", root.display());
        Ok(Some(Tables(tables)))
    }

    /// Returns the columns of the first table with what they hold.
    pub fn kinds(&self) -> Vec<(&str, Kind)> {
        self.0[0].kinds()
    }

    /// Returns a name for each row: that of its table, and its number.
    pub fn row_names(&self) -> Vec<PathBuf> {
        let of = |table: &Table| {
            let name = table.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            (0..table.rows()).map(move |row| PathBuf::from(format!("{name}:{}", row + 1))).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }

    /// Returns the values of some columns, a line a row.
    ///
    /// # Errors
    /// Fails if a table lacks a column, or if it is damaged.
    pub fn lines(&self, columns: &[&str]) -> Result<Vec<Line>> {
        self.each(|table| table.lines(columns, |line| line))
    }

    /// Returns the values of all columns, a line a row.
    ///
    /// # Errors
    /// Fails if a table is damaged.
    pub fn all_lines(&self) -> Result<Vec<Line>> {
        self.each(|table| table.lines(&table.columns(), |line| line))
    }

    /// Returns what is made of the lines of all tables, one after the other.
    fn each<T>(&self, of: impl Fn(&Table) -> Result<Vec<T>>) -> Result<Vec<T>> {
        Ok(self.0.iter().map(of).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Returns the names of the classes that the footers give the numbers of a column; `None` if they give none.
    ///
    /// # Errors
    /// Fails if two tables name others.
    pub fn names(&self, column: &str) -> Result<Option<Vec<String>>> {
        let first = self.0[0].names(column)?;
        for table in &self.0[1..] {
            ensure!(
                table.names(column)? == first,
                "{}: names other classes in `{column}` than {}: fetch them again",
                table.path().display(),
                self.0[0].path().display()
            );
        }
        Ok(first)
    }

    /// Returns the labels of all rows.
    ///
    /// # Errors
    /// Fails if a table lacks the column, if its footer names other classes, or if a row has no label of a class.
    pub fn labels(&self, column: &str, numbers: Numbers) -> Result<Vec<u32>> {
        let (classes, names) = match numbers {
            Numbers::Named(classes) => (classes, self.names(column)?),
            Numbers::Respelled(classes, spellings) => {
                (classes, self.names(column)?.map(|names| respelled(names, spellings)))
            }
            Numbers::Ordered(classes) => (classes, None),
        };
        let known = Known::new(classes);
        if let Some(names) = &names {
            let [found, wanted] = [&names[..], classes].map(|names| names.iter().collect::<BTreeSet<_>>());
            ensure!(
                found == wanted,
                "{}: its footer names other classes in `{column}` ({}) than the set has ({}): name the root of this set",
                self.0[0].path().display(),
                some(names),
                some(classes)
            );
        }
        let class = |value: &Value, text: &str| match (&names, value, numbers) {
            (None, Value::Bool(truth), Numbers::Named(_) | Numbers::Respelled(..)) => known.truth(*truth),
            (None, Value::Bool(truth), Numbers::Ordered(_)) => Some(u32::from(*truth)),
            (Some(names), Value::String(_), _) => known.named(text).or_else(|| known.named(at_place(names, text)?)),
            (Some(names), ..) => known.named(at_place(names, text)?),
            (None, Value::String(_), _) | (None, _, Numbers::Named(_) | Numbers::Respelled(..)) => known.of(text),
            (None, _, Numbers::Ordered(_)) => known.placed(text),
        };
        let label = |line: Line| -> Result<u32> {
            let text = line.text(column)?;
            class(line.get(column)?, &text).with_context(|| {
                let nor = if names.is_none() { known.nor() } else { String::new() };
                format!("{line}: `{column}` is {text}, which is none of the {} classes{nor}", classes.len())
            })
        };
        self.each(|table| table.lines(&[column], label))?.into_iter().collect()
    }

    /// Returns the texts of a column; numbers that the footer names become those names.
    ///
    /// # Errors
    /// Fails if a table lacks the column, or if a row has no value in it.
    pub fn words(&self, column: &str) -> Result<Vec<String>> {
        let names = self.names(column)?;
        let word = |line: Line| -> Result<String> {
            let text = line.text(column)?;
            let name = names.as_ref().and_then(|names| at_place(names, &text));
            Ok(name.cloned().unwrap_or(text))
        };
        self.each(|table| table.lines(&[column], word))?.into_iter().collect()
    }

    /// Returns the images of a column as files with these labels.
    ///
    /// # Errors
    /// Fails if the column holds no images.
    pub fn listing(self, column: &str, labels: Vec<u32>) -> Result<Listing> {
        let archives: Arc<[PathBuf]> = self.0.iter().map(|table| table.path().to_path_buf()).collect();
        let (mut paths, mut of) = (Vec::with_capacity(labels.len()), Vec::with_capacity(labels.len()));
        for (archive, table) in (0..).zip(&self.0) {
            let path = table.path();
            let size = path.metadata().with_context(|| format!("{}: cannot read", path.display()))?.len();
            for row in 0..table.rows() {
                paths.push(format!("{}:{}", path.display(), row + 1).into());
                of.push(Member { archive, at: row as u64, size });
            }
        }
        let rows = Some(Arc::new(Rows::new(self.0, column)?));
        Ok(Listing { paths, members: Some(Members { archives, rows, of }), labels, ..Listing::default() })
    }
}

/// Returns the name at the place that a label writes.
fn at_place<'a>(names: &'a [String], label: &str) -> Option<&'a String> {
    names.get(label.parse::<usize>().ok()?)
}

/// Returns the names of a footer with those of the set in place of other spellings.
fn respelled(names: Vec<String>, spellings: &[(&str, &str)]) -> Vec<String> {
    let own =
        |name: String| spellings.iter().find(|(there, _)| *there == name).map_or(name, |(_, here)| here.to_string());
    names.into_iter().map(own).collect()
}

#[cfg(test)]
mod tests;
