//! Any images listed in a CSV file. Each row holds the path and the label of one image, and optionally its split and
//! group. Labels are class names, or whole numbers that are positions in `classes` ([`Known`]); with `columns.target`, a number is learnt in place
//! of a class.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::base::outside::of_csv_cell;
use crate::data::numbers::number;
use crate::data::read::class_folders::{self, read_classes};
use crate::data::read::columns::Columns;
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::read::known::{Known, implied};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Groups, Request, Resize, Split, SplitName};
use crate::hub::originals::Originals;
use crate::schema::{Choice, Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "list",
    about: "any image files by a CSV list: path, label or number, split (train, val, test), group",
    fetch: "your own images and a list of them: ROOT/list.csv with the columns path (below ROOT), label (or a number, \
            columns.target) and, if you like, split and group",
    marks: &[],
    originals: Originals::ByHand("these are your own files"),
    hub: None,
    read: |reader| Box::new(List::read(reader)),
    sample: Some(|reader| Box::new(List::read(reader))),
};

settings! {
    struct List {
        root: PathBuf, because "the folder that holds the list and the images";
        /// CSV file with a row per image, below `root`.
        list: String = "list.csv".into();
        columns: ColumnNames, by |reader| reader.table("columns", ColumnNames::read);
        /// Whether images are turned by their EXIF orientation, as photos of phones need. ICC profiles and transparency are
        /// ignored, as in torchvision.
        exif_orientation: bool = true;
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
        classes: Option<Vec<String>>, by read_classes;
    } then check
}

settings! {
    /// The names of the columns. Without a column for the split, every image is a test image; without one for the group,
    /// there are no groups.
    struct ColumnNames {
        /// Column with the image's path.
        path: String = "path".into();
        /// Column with the label.
        label: String = "label".into();
        /// Column with a number that is learnt in place of a class.
        target: Option<String>;
        /// Column with the split: train, val or test.
        split: Option<String>;
        /// Column with the group.
        group: Option<String>;
    } then check
}

impl ColumnNames {
    fn check(&self, reader: &Reader) {
        if self.target.is_some() && reader.sets("label") {
            reader.problem(
                "label",
                "means nothing beside target, which is the column that is learnt: leave one of them out",
            );
        }
    }
}

/// The usual names of the columns that need not be there.
const SPLIT: &str = "split";
const GROUP: &str = "group";

/// The rows of the list as read.
struct Rows {
    paths: Vec<PathBuf>,
    /// The labels; empty where numbers are learnt.
    labels: Vec<String>,
    /// The numbers; empty where classes are learnt.
    numbers: Vec<f64>,
    splits: Vec<SplitName>,
    /// Whether a column says of which split each image is; otherwise all are test images.
    are_divided: bool,
    groups: Option<Vec<String>>,
}

impl Dataset for List {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        let stem = self.list.strip_suffix(".csv").unwrap_or(&self.list);
        class_folders::label(ENTRY.key, &self.root, if stem == "list" { "" } else { stem })
    }

    fn classes(&self) -> Result<Vec<String>> {
        match (&self.columns.target, &self.classes) {
            (Some(target), _) => Ok(vec![target.clone()]),
            (None, Some(given)) => Ok(given.clone()),
            (None, None) => Ok(implied(&self.rows()?.labels)),
        }
    }

    fn has_numbers(&self) -> bool {
        self.columns.target.is_some()
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        let found: BTreeSet<SplitName> = self.rows()?.splits.into_iter().collect();
        Ok(found.into_iter().collect())
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn turns(&self) -> bool {
        self.exif_orientation
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let rows = self.rows()?;
        let kept: Vec<usize> = (0..rows.paths.len()).filter(|&i| rows.splits[i] == split).collect();
        let at = self.root.join(&self.list);
        ensure!(
            rows.are_divided || !kept.is_empty(),
            "{}: has no column `{}`, so that all of its images are for tests: add one with the words train, val and test",
            at.display(),
            self.columns.split.as_deref().unwrap_or(SPLIT)
        );
        ensure!(!kept.is_empty(), "{}: no image of the split `{split}`", at.display());
        let groups =
            rows.groups.as_ref().map(|of| Groups::of(&kept.iter().map(|&i| of[i].as_str()).collect::<Vec<_>>()));
        let paths = kept.iter().map(|&i| rows.paths[i].clone()).collect();
        let numbers = self.has_numbers().then(|| kept.iter().map(|&i| rows.numbers[i]).collect());
        let labels = if numbers.is_some() { vec![0; kept.len()] } else { self.labels(&rows, &kept)? };
        if split == SplitName::Train && self.classes.is_none() {
            warn_of_zero(&at, ENTRY.key, &rows.labels);
        }
        self.files.turned(self.exif_orientation).load(
            Listing { paths, labels, numbers, groups, members: None },
            split,
            request,
        )
    }
}

impl List {
    fn check(&self, reader: &Reader) {
        if self.classes.is_some() && self.has_numbers() {
            reader.problem("classes", "means nothing beside columns.target, which is a number: leave one of them out");
        }
    }

    /// Returns the classes of the rows `kept`.
    fn labels(&self, rows: &Rows, kept: &[usize]) -> Result<Vec<u32>> {
        let classes = self.classes.clone().unwrap_or_else(|| implied(&rows.labels));
        let known = Known::new(&classes);
        let label = |&i: &usize| {
            let text = rows.labels[i].as_str();
            known.of(text).with_context(|| {
                format!(
                    "{}: `{}` is of the class `{text}`, which is not one of data.list.classes{}",
                    self.root.join(&self.list).display(),
                    rows.paths[i].display(),
                    known.nor()
                )
            })
        };
        kept.iter().map(label).collect()
    }

    fn rows(&self) -> Result<Rows> {
        let table = Columns::read(&self.root.join(&self.list))?;
        let learnt = self.columns.target.as_ref().unwrap_or(&self.columns.label);
        // A column that the config names must exist.
        let optional = |given: &Option<String>, usual: &str| match given {
            Some(name) => table.place(name).map(Some),
            None => table.find_usual(usual, &[&self.columns.path, learnt]),
        };
        let key = if self.has_numbers() { "target" } else { "label" };
        let (path, label) = (expected(&table, &self.columns.path, "path")?, expected(&table, learnt, key)?);
        let (split, group) = (optional(&self.columns.split, SPLIT)?, optional(&self.columns.group, GROUP)?);
        let groups = group.map(|_| vec![]);
        let are_divided = split.is_some();
        let mut rows = Rows { paths: vec![], labels: vec![], numbers: vec![], splits: vec![], are_divided, groups };
        for (at, row) in table.rows() {
            let needed =
                [(path, "path"), (label, learnt.as_str())].into_iter().chain(group.map(|column| (column, "group")));
            for (column, what) in needed {
                ensure!(!row[column].is_empty(), "{at}: the {what} is empty: fill it in, or leave the row out");
            }
            rows.paths.push(self.root.join(&row[path]));
            match self.has_numbers() {
                true => rows.numbers.push(number(&row[label], learnt, &at)?),
                // The list may be one of `bella predict`.
                false => rows.labels.push(of_csv_cell(&row[label]).to_string()),
            }
            rows.splits.push(match split {
                Some(column) => SplitName::of_word(&row[column])
                    .with_context(|| format!("{at}: unknown split `{}`; known: {}", &row[column], SplitName::list()))?,
                None => SplitName::Test,
            });
            if let (Some(groups), Some(column)) = (&mut rows.groups, group) {
                groups.push(row[column].to_string());
            }
        }
        self.check_once(&rows)?;
        Ok(rows)
    }

    /// Checks that no image is listed twice.
    fn check_once(&self, rows: &Rows) -> Result<()> {
        let mut seen = BTreeMap::new();
        for (path, split) in rows.paths.iter().zip(&rows.splits) {
            if let Some(other) = seen.insert(without_turns(path), split) {
                bail!(
                    "{}: `{}` is listed twice ({other}, {split}); list every image once",
                    self.root.join(&self.list).display(),
                    path.display()
                );
            }
        }
        Ok(())
    }
}

/// Returns the path without its `.`, and without each name that a `..` takes back.
fn without_turns(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => _ = plain.pop(),
            _ => plain.push(part),
        }
    }
    plain
}

/// Returns the index of a column that must be there, whose name is that of `key` in `columns`.
fn expected(table: &Columns, name: &str, key: &str) -> Result<usize> {
    table.place(name).map_err(|why| anyhow!("{why}; data.list.columns.{key} names another one"))
}

/// Warns of the class 0 that labels from 1 on imply, though nothing is of it.
pub(super) fn warn_of_zero(at: &Path, set: &str, labels: &[String]) {
    if let Some(names) = names_from_one(labels) {
        let at = at.display();
        tracing::warn!(
            "{at}: nothing has the label 0, which is a class all the same; otherwise set data.{set}.classes = {names:?}"
        );
    }
}

/// Returns the classes that numbers from 1 to the highest label would be the names of; `None` if the labels are others.
fn names_from_one(labels: &[String]) -> Option<Vec<String>> {
    let classes = implied(labels);
    let (first, others) = classes.split_first()?;
    (first == "0" && !labels.iter().any(|label| Known::new(&classes).of(label) == Some(0))).then(|| others.to_vec())
}

impl SmallSet for List {
    fn side(&self) -> u32 {
        256
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let ColumnNames { path, label, target, split, group } = &self.columns;
        let label = target.as_ref().unwrap_or(label);
        let (split, group) = (split.as_deref().unwrap_or(SPLIT), group.as_deref().unwrap_or(GROUP));
        let class = |label: usize| self.classes.as_ref().map_or(label.to_string(), |names| names[label].clone());
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        let mut rows = format!("{path},{label},{split},{group}\n");
        for split in SplitName::ALL {
            for i in 0..sizes.of(split) {
                let file = format!("{split}/{i:06}.jpg");
                put(&self.root.join(&file), pictures.file(i)?)?;
                rows += &format!("{file},{},{split},group {}\n", class(sizes.label(i)), i % 2);
            }
        }
        put(&self.root.join(&self.list), rows)
    }
}
