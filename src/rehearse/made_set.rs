//! A small data set that takes the place of a real one in a rehearsal.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::Scale;
use crate::data::{Dataset, Sizes, SmallSet, entry};

/// The number of corruptions in a small set with corrupted versions.
pub const CORRUPTIONS: usize = 1;
/// The largest number of pixels per side of an image in a tiny rehearsal.
const TINY_SIDE: u32 = 20;

/// A small set with the settings of the real one.
pub struct MadeSet {
    pub key: String,
    /// The folder with its files. A set that needs none has no `root` among its settings.
    pub root: PathBuf,
    /// The number of pixels per side of the published images, roughly if they differ; 0 for texts.
    pub side: u32,
    pub sizes: Sizes,
    /// The settings by which it is read, those of [`MadeSet::overrides`] among them.
    pub settings: toml::Table,
    /// The settings that differ from those of the real set, besides `root`.
    pub overrides: toml::Table,
    small: Box<dyn SmallSet>,
}

impl MadeSet {
    /// Plans a small set in the place of `real`, whose key is `key`, below `root`. The scale sets the size of its images.
    ///
    /// # Errors
    /// Fails if nothing writes a small set in this layout.
    pub fn new(key: &str, real: &dyn Dataset, root: PathBuf, sizes: Sizes, scale: Scale) -> Result<MadeSet> {
        let entry = entry(key)?;
        let mut settings = real.resolved();
        if let Some(value) = settings.get_mut("root") {
            *value = root.to_string_lossy().into_owned().into();
        }
        let small = entry.small(&settings)?;
        let side = small.side();
        let sizes = Sizes { side: if scale == Scale::Tiny { side.min(TINY_SIDE) } else { side }, ..sizes };
        let overrides = small.overrides(&sizes);
        settings.extend(overrides.clone());
        let small = entry.small(&settings)?;
        Ok(MadeSet { key: key.to_string(), root, side, sizes, settings, overrides, small })
    }

    /// Writes its files.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(&self) -> Result<()> {
        self.small.write(&self.sizes).with_context(|| format!("the stand-in of {}", self.key))
    }
}
