//! Small data sets of made-up samples in the layouts of the published ones, so that bella's own readers read them: rehearsals
//! and tests use them. Each data set writes its own layout, beside its reader; here is what the writers share.

mod pictures;
mod words;

use std::path::Path;

use anyhow::{Context, Result};

use super::split::SplitName;
pub use pictures::{Pictures, planar, value};
pub use words::{WORDS, text};

/// A data set that writes a small one in its layout, to the files that its reader looks for.
pub trait SmallSet {
    /// Returns the number of pixels per side of the published images, roughly if they differ; 0 for texts.
    fn side(&self) -> u32;

    /// Returns the keys of the set's table that a small set needs and the published files do not. They are among the settings
    /// when the small set is written and read.
    fn overrides(&self, _sizes: &Sizes) -> toml::Table {
        toml::Table::new()
    }

    /// Writes the files below the root.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    fn write(&self, sizes: &Sizes) -> Result<()>;
}

/// The sizes of a small set.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The number of classes of the set.
    pub classes: usize,
    /// The number of classes that have samples. The labels are `0, 1, …` in turn.
    pub present: usize,
    pub train: usize,
    pub val: usize,
    /// The number of samples of each test set.
    pub test: usize,
    /// The number of pixels per side of image files, unless the layout fixes it.
    pub side: u32,
    /// The largest number of corruptions, for sets with corrupted versions.
    pub corruptions: usize,
}

impl Sizes {
    /// Returns the label of the `i`-th sample of a split.
    pub fn label(&self, i: usize) -> usize {
        i % self.present.max(1)
    }

    /// Returns the number of samples of a split.
    pub fn of(&self, split: SplitName) -> usize {
        match split {
            SplitName::Train => self.train,
            SplitName::Val => self.val,
            SplitName::Test => self.test,
        }
    }
}

/// Writes a file and creates the folders that contain it.
///
/// # Errors
/// Fails if the file or a folder cannot be written.
pub fn put(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(failed)?;
    std::fs::write(path, bytes).with_context(failed)
}
