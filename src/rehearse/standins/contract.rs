//! What a stand-in for a data set is, what is asked of it, and what several of them use to answer.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// How to make one data set's stand-in.
pub struct StandIn {
    /// The data set's registry key.
    pub key: &'static str,
    /// Pixels a side of the published images, roughly where they differ.
    pub side: u32,
    /// Writes the files below the root.
    pub write: fn(&Wanted) -> Result<()>,
    /// Keys of the set's table that the stand-in needs and the official files do not.
    pub overrides: fn(&Wanted) -> toml::Table,
}

/// What is wanted of a stand-in.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub root: PathBuf,
    /// The set's own settings, resolved.
    pub settings: toml::Table,
    /// Classes that the set has.
    pub classes: usize,
    /// Classes of which there are images: labels are `0, 1, …` in turn.
    pub present: usize,
    pub train: usize,
    pub val: usize,
    pub test: usize,
    /// Pixels a side of image files, unless the layout settles it.
    pub side: u32,
    /// Corrupted versions, of sets that have such: how many corruptions at most.
    pub corruptions: usize,
}

impl Wanted {
    /// The label of the `i`-th image of a part.
    pub(super) fn label(&self, i: usize) -> usize {
        i % self.present.max(1)
    }

    /// A text of the settings.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(key).and_then(toml::Value::as_str)
    }

    /// A list of texts of the settings.
    pub(super) fn texts(&self, key: &str) -> Option<Vec<String>> {
        let list = self.settings.get(key)?.as_array()?;
        Some(list.iter().filter_map(|value| value.as_str().map(str::to_string)).collect())
    }
}

/// No overrides.
pub(super) fn none(_: &Wanted) -> toml::Table {
    toml::Table::new()
}

/// One override.
pub(super) fn one(key: &str, value: impl Into<toml::Value>) -> toml::Table {
    toml::Table::from_iter([(key.to_string(), value.into())])
}

/// Writes a file and the folders it lies in.
pub(super) fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(failed)?;
    std::fs::write(path, bytes).with_context(failed)
}
