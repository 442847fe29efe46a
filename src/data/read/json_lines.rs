//! Labelled texts, and pairs of texts, as a split.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::Value;

use super::tables;
use crate::data::lines::{Line, write_lines};
use crate::data::small::Sizes;
use crate::data::subset::kept;
use crate::data::{Inputs, Split, SplitName, Subset, Texts};

/// A text with its label.
pub struct Sample {
    pub text: String,
    pub label: u32,
}

/// A split of a set that is read, and the part of it that is asked for.
#[derive(Clone, Copy)]
pub struct Portion<'a> {
    /// The name of the set.
    pub set: &'a str,
    pub split: SplitName,
    pub subset: Option<Subset>,
}

/// Returns the part of a split whose samples these are. With `ended`, the end-of-text token follows each text.
///
/// # Errors
/// Fails if the subset asks for more samples than there are.
pub fn split(portion: Portion, samples: Vec<Sample>, ended: bool) -> Result<Split> {
    let (texts, labels): (Vec<String>, Vec<u32>) = samples.into_iter().map(|one| (one.text, one.label)).unzip();
    of_texts(portion, Texts::new(texts, ended), labels, None)
}

/// A set of labelled texts in lines of JSON or in the Hub's tables, which is tested on its published validation set, since its test set
/// has no labels.
pub struct TestedOnValidation<'a> {
    pub key: &'a str,
    pub root: &'a Path,
    /// The configuration of the Hub's tables, and the columns that are read there.
    pub config: &'a str,
    pub columns: &'a [&'a str],
    /// Whether the end-of-text token follows each text.
    pub ended: bool,
    pub subset: Option<Subset>,
}

impl TestedOnValidation<'_> {
    /// Reads a split, whose lines of JSON lie in `file`.
    ///
    /// # Errors
    /// Fails if there is no such split, if the files or a sample are malformed, or if the subset asks for more samples than there are.
    pub fn load(&self, name: SplitName, file: &Path, sample: impl Fn(&Line) -> Result<Sample>) -> Result<Split> {
        let TestedOnValidation { key, root, config, columns, ended, subset } = *self;
        let published = match name {
            SplitName::Train => "train",
            SplitName::Test => "validation",
            SplitName::Val => bail!("{key} has no split `val`; set data.{key}.validation, say to 0.1"),
        };
        let lines = tables::lines(root, tables::Columns { config, split: published, names: columns }, file)?;
        let samples = lines.iter().map(sample).collect::<Result<_>>()?;
        split(Portion { set: key, split: name, subset }, samples, ended)
    }
}

/// Writes made-up lines into the files of the training and of the test split.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write_splits(sizes: &Sizes, file: impl Fn(SplitName) -> PathBuf, line: impl Fn(usize) -> Value) -> Result<()> {
    let splits = [SplitName::Train, SplitName::Test];
    splits.into_iter().try_for_each(|split| write_lines(&file(split), (0..sizes.of(split)).map(&line)))
}

/// Labelled texts, or pairs of them.
#[derive(Default)]
pub struct Pairs {
    texts: Vec<String>,
    /// The second texts; empty if there are none.
    seconds: Vec<String>,
    labels: Vec<u32>,
    /// The numbers in place of classes; empty if there are classes.
    numbers: Vec<f64>,
}

/// The label of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label {
    Class(u32),
    Number(f64),
}

impl Pairs {
    pub fn push(&mut self, text: &str, second: Option<&str>, label: Label) {
        self.texts.push(text.to_string());
        self.seconds.extend(second.map(str::to_string));
        match label {
            Label::Class(class) => self.labels.push(class),
            Label::Number(number) => {
                self.labels.push(0);
                self.numbers.push(number);
            }
        }
    }

    /// Returns the part of a split whose texts these are.
    ///
    /// # Errors
    /// Fails if the subset asks for more samples than there are.
    pub fn split(self, portion: Portion) -> Result<Split> {
        let Pairs { texts, seconds, labels, numbers } = self;
        let texts = if seconds.is_empty() { Texts::new(texts, false) } else { Texts::pairs(texts, seconds) };
        of_texts(portion, texts, labels, (!numbers.is_empty()).then_some(numbers))
    }
}

fn of_texts(portion: Portion, texts: Texts, labels: Vec<u32>, numbers: Option<Vec<f64>>) -> Result<Split> {
    let Portion { set, split, subset } = portion;
    let all = Split { numbers, ..Split::new(format!("{set}/{split}"), Inputs::Texts(texts), labels) };
    kept(all, subset, split)
}
