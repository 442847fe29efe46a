//! The definition of a stand-in for a data set, the request that it fulfils, and functions that several stand-ins
//! share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The functions and properties that make up a data set's stand-in.
pub struct StandIn {
    /// The data set's registry key.
    pub key: &'static str,
    /// The number of pixels per side of the published images, roughly if they differ.
    pub side: u32,
    /// Writes the files below the root.
    pub write: fn(&Wanted) -> Result<()>,
    /// Returns the keys of the set's table that the stand-in needs and the official files do not.
    pub overrides: fn(&Wanted) -> toml::Table,
}

/// The request for a stand-in.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub root: PathBuf,
    /// The resolved settings of the set.
    pub settings: toml::Table,
    /// The number of classes of the set.
    pub classes: usize,
    /// The number of classes that have images. The labels are `0, 1, …` in turn.
    pub present: usize,
    pub train: usize,
    pub val: usize,
    pub test: usize,
    /// The number of pixels per side of image files, unless the layout fixes it.
    pub side: u32,
    /// The largest number of corruptions, for sets with corrupted versions.
    pub corruptions: usize,
}

impl Wanted {
    /// Returns the label of the `i`-th image of a part.
    pub(super) fn label(&self, i: usize) -> usize {
        i % self.present.max(1)
    }

    /// Returns a text in the settings.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(key).and_then(toml::Value::as_str)
    }

    /// Returns a list of texts in the settings.
    pub(super) fn texts(&self, key: &str) -> Option<Vec<String>> {
        let list = self.settings.get(key)?.as_array()?;
        Some(list.iter().filter_map(|value| value.as_str().map(str::to_string)).collect())
    }
}

/// Returns no overrides.
pub(super) fn none(_: &Wanted) -> toml::Table {
    toml::Table::new()
}

/// Returns a single override.
pub(super) fn one(key: &str, value: impl Into<toml::Value>) -> toml::Table {
    toml::Table::from_iter([(key.to_string(), value.into())])
}

/// Writes a file and creates the folders that contain it.
pub(super) fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(failed)?;
    std::fs::write(path, bytes).with_context(failed)
}
