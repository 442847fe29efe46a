//! Stand-ins for data sets: made-up images in each set's official layout, under its official file names, so that bella's
//! own readers read them. One file a layout, registered in [`STAND_INS`].

mod camelyon17;
mod cifar;
mod cifar_c;
mod digits;
mod domainnet;
mod flowers102;
mod image_folder;
mod image_folder_c;
mod imagenet;
mod list;
mod mat;
mod paint;
mod stl10;
mod svhn;
#[cfg(test)]
mod tests;
mod tiny_imagenet;
mod vtab;

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

/// Every known stand-in: a new data set adds its own here.
pub static STAND_INS: &[&StandIn] = &[
    &cifar::CIFAR10,
    &cifar::CIFAR100,
    &stl10::STAND_IN,
    &svhn::STAND_IN,
    &flowers102::STAND_IN,
    &camelyon17::STAND_IN,
    &domainnet::STAND_IN,
    &imagenet::STAND_IN,
    &tiny_imagenet::STAND_IN,
    &vtab::STAND_IN,
    &list::STAND_IN,
    &image_folder::STAND_IN,
    &digits::STAND_IN,
    &cifar_c::CIFAR10_C,
    &cifar_c::CIFAR100_C,
    &image_folder_c::STAND_IN,
];

/// The stand-in of a data set.
///
/// # Errors
/// A data set without one.
pub fn find(key: &str) -> Result<&'static StandIn> {
    let found = STAND_INS.iter().copied().find(|stand_in| stand_in.key == key);
    found.with_context(|| format!("data.{key}: there is no stand-in for this data set; register one in STAND_INS"))
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

/// The label of the `i`-th image of a part.
impl Wanted {
    fn label(&self, i: usize) -> usize {
        i % self.present.max(1)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(key).and_then(toml::Value::as_str)
    }

    /// A list of texts of the settings.
    fn texts(&self, key: &str) -> Option<Vec<String>> {
        let list = self.settings.get(key)?.as_array()?;
        Some(list.iter().filter_map(|value| value.as_str().map(str::to_string)).collect())
    }
}

/// No overrides.
fn none(_: &Wanted) -> toml::Table {
    toml::Table::new()
}

/// One override.
fn one(key: &str, value: impl Into<toml::Value>) -> toml::Table {
    toml::Table::from_iter([(key.to_string(), value.into())])
}

/// Writes a file and the folders it lies in.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(failed)?;
    std::fs::write(path, bytes).with_context(failed)
}
