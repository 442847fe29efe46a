//! The interface between a data set and the rest of the program.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::decode::Resize;
use super::inputs::Medium;
use super::lines::Line;
use super::request::Request;
use super::small::SmallSet;
use super::split::{Split, SplitName};
use super::versions::Version;
use crate::hub::originals::Originals;
use crate::schema::{Reader, Resolved, Tree, keyed, limits};

/// The reading of a table for the writer of a small set.
pub type ReadSmall = fn(&Reader) -> Box<dyn SmallSet>;

/// An entry of the registry: everything that is said of one kind of data set outside its own file.
pub struct Entry {
    /// The name in `[data.<key>]` and in results.
    pub key: &'static str,
    /// A description in one line for `bella list`.
    pub about: &'static str,
    /// The source of the files, and the places below `root` where they must lie.
    pub fetch: &'static str,
    /// The form in which the Hub has the set, if bella reads that, too.
    pub hub: Option<Hub>,
    /// Files and folders that the published archives leave behind, by which `bella init` knows them in the root or in a folder around it.
    pub marks: &'static [&'static str],
    /// The files that `bella data fetch` downloads, or why it does not.
    pub originals: Originals,
    /// Reads the table. Mistakes are recorded in the reader, and no file is opened.
    pub read: fn(&Reader) -> Box<dyn Dataset>,
    /// Reads the same table for the writer of a small set in this layout. `None` if nothing writes one; the set is then not
    /// rehearsed.
    pub sample: Option<ReadSmall>,
}

keyed!(Entry, "data set");

/// The form in which a repository of the Hub has a data set: tables with a column for each property of a sample.
#[derive(Clone, Copy)]
pub struct Hub {
    pub repository: &'static str,
    /// The name of the configuration, which is that of a folder. Sets of several tasks choose among several.
    pub config: &'static str,
    /// The names of the splits that are not called as here.
    pub splits: &'static [(SplitName, &'static str)],
    /// The column with the images; empty for texts.
    pub image: &'static str,
    /// The column with the labels.
    pub label: &'static str,
}

impl Hub {
    /// Returns the root by which a config names the repository.
    pub fn root(&self) -> PathBuf {
        format!("hf://datasets/{}", self.repository).into()
    }
}

impl Entry {
    /// Returns the form on the Hub.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn hub(&self) -> Result<&Hub> {
        self.hub.as_ref().with_context(|| format!("{} is not read from the Hub", self.key))
    }

    /// Returns the writer of a small set with the settings of a table.
    ///
    /// # Errors
    /// Fails if there is none, or with every mistake in the table.
    pub fn small(&self, table: &toml::Table) -> Result<Box<dyn SmallSet>> {
        let sample = self.sample.with_context(|| {
            format!(
                "data.{0}: {0} has no writer of a small set, so it cannot be rehearsed: rehearse on another set",
                self.key
            )
        })?;
        self.read_by(sample, table)
    }

    /// Returns what `read`, a function of this entry, makes of a table.
    pub(super) fn read_by<T>(&self, read: fn(&Reader) -> T, table: &toml::Table) -> Result<T> {
        let source = format!("data.{}", self.key);
        let tree = Tree::parse(&source, &toml::to_string(table)?).map_err(|problems| anyhow::anyhow!("{problems}"))?;
        let reader = Reader::root(&tree);
        let set = read(&reader);
        reader.close(set).map_err(|problems| anyhow::anyhow!("{problems}"))
    }
}

/// A configured data set. Only methods that return a `Result` touch files. `root` is its only path.
pub trait Dataset: Resolved + Send + Sync {
    /// Returns the registry key.
    fn key(&self) -> &'static str;

    /// Returns the names of the classes. The position of a name is its label.
    ///
    /// # Errors
    /// Fails if the names come from files or folders that cannot be read.
    fn classes(&self) -> Result<Vec<String>>;

    /// Returns the name of the set in results, unless the config gives one.
    fn label(&self) -> String {
        self.key().to_string()
    }

    /// Reads one official split. The files of other splits need not exist.
    ///
    /// # Errors
    /// Fails if the set does not have the split, files are missing or malformed, or a label is out of range.
    fn load(&self, split: SplitName, request: &Request) -> Result<Split>;

    /// Returns the prompt of one line of a file of texts, which need not have a label.
    ///
    /// # Errors
    /// Fails if the line lacks what the prompt needs, or if the set has no texts.
    fn prompt(&self, line: &Line) -> Result<String> {
        bail!("{line}: {} has no texts", self.key())
    }

    /// Returns the second text of one line of a file of pairs; `None` for a set of single texts.
    ///
    /// # Errors
    /// Fails if the line lacks what the text needs.
    fn second(&self, _line: &Line) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the questions about images of the lines of files, which need no answers; `request` says how images are read.
    ///
    /// # Errors
    /// Fails if a line lacks what a question needs, if an image cannot be read, or if the set has no questions.
    fn asked(&self, lines: &[Line], _request: &Request) -> Result<Split> {
        match lines.first() {
            Some(line) => bail!("{line}: {} has no questions about images", self.key()),
            None => bail!("{} has no questions about images", self.key()),
        }
    }

    /// Returns whether the end-of-text token follows its prompts.
    fn ends_prompts(&self) -> bool {
        false
    }

    /// Returns the splits that the set has.
    ///
    /// # Errors
    /// Fails if the splits depend on files that cannot be read.
    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(vec![SplitName::Train, SplitName::Test])
    }

    /// Returns the sizes that the publisher states. Empty for a user's own images.
    fn published(&self) -> Published {
        Published::default()
    }

    /// Returns what its samples are.
    fn medium(&self) -> Medium {
        Medium::Images
    }

    /// Returns whether its samples are questions that are answered in words, and not by one of the classes.
    fn has_free_answers(&self) -> bool {
        false
    }

    /// Returns whether its labels are numbers. [`classes`](Self::classes) is then the name of the number alone.
    fn has_numbers(&self) -> bool {
        false
    }

    /// Returns whether a model that knows more classes predicts among those of the set alone.
    fn narrows(&self) -> bool {
        false
    }

    /// Returns the way image files are resized for the network. `None` for a set that is stored as pixels.
    fn resize(&self) -> Option<Resize> {
        None
    }

    /// Returns whether new photos are turned by their EXIF orientation before they are predicted. Only a user's own set can
    /// say that they are not.
    fn turns(&self) -> bool {
        true
    }

    /// Returns the test sets if the config names several, which are evaluated one by one: for each, the name that is
    /// appended to the label of the set, and the set with this test set alone. Empty otherwise.
    fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        Vec::new()
    }

    /// Returns the published corrupted versions that the config asks for, each a test set of its own. A set has either
    /// versions or splits, so this is empty for a set with splits.
    ///
    /// # Errors
    /// Fails if files or folders are missing, and names all of them in one message.
    fn versions(&self) -> Result<Vec<Version>> {
        Ok(Vec::new())
    }

    /// Reads one of [`Dataset::versions`].
    ///
    /// # Errors
    /// Fails if the set does not have the version, files are missing or malformed, or a label is out of range.
    fn load_version(&self, version: &Version, _request: &Request) -> Result<Split> {
        bail!("{} has no corrupted versions, so no `{version}`; bella makes its own with --corrupt", self.key())
    }
}

/// The published sizes of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The number of classes.
    pub classes: Option<usize>,
    /// The number of images of each published split.
    pub images: Vec<(SplitName, usize)>,
}

impl Published {
    /// Returns the sizes of a data set for which they are known.
    pub fn new(classes: usize, images: &[(SplitName, usize)]) -> Published {
        Published { classes: Some(classes), images: images.to_vec() }
    }

    /// Returns the number of images of a split. `None` if it is not published.
    pub fn images_of(&self, split: SplitName) -> Option<usize> {
        self.images.iter().find(|(name, _)| *name == split).map(|(_, count)| *count)
    }
}

/// Checks that a share of the training images is not held out where `val` chooses another published part than the usual one.
pub fn check_validation(reader: &Reader, is_chosen: bool) {
    let share = !reader.is_text("validation") && reader.float("validation", limits::at_least(0.0)).or(0.0) > 0.0;
    if is_chosen && share {
        reader.problem("val", "is for validation = \"val\"; leave it out, or set that");
    }
}
