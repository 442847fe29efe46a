//! Data sets by name: the root of a set may be a folder or a repository of the Hub.

mod files;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::name::HubName;
use super::repository::Repository;
use super::settings::Settings;
use crate::schema::{Field, Reader, Setting};

pub use files::DataFiles;

/// The root of a data set: a folder, or the name of a repository with the commit that it means, so that a run reads one commit and says
/// which. It is used as that path.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct DataRoot(PathBuf);

impl DataRoot {
    /// Returns the root that a path is or a name means: a branch means the commit that the cache has, or else the Hub's.
    ///
    /// # Errors
    /// Fails if a name is none, or if neither the cache nor the Hub knows it.
    pub fn of(path: &Path, settings: &Settings) -> Result<DataRoot> {
        Ok(DataRoot(match HubName::of_data(path)? {
            None => path.to_path_buf(),
            Some(name) => {
                let commit = Repository::new(settings, &name).pin()?;
                name.at(&commit).to_string().into()
            }
        }))
    }
}

impl Deref for DataRoot {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Setting for DataRoot {
    type Range = ();

    fn field(reader: &Reader, key: &str, (): ()) -> Field<DataRoot> {
        reader.path(key).map(|path| {
            DataRoot::of(&path, &Settings::of_environment()).unwrap_or_else(|error| {
                reader.problem(key, format!("{error:#}"));
                DataRoot(path)
            })
        })
    }

    fn stand_in() -> DataRoot {
        DataRoot::default()
    }
}

/// Returns the folder that the root of a data set is, or means by `hf://datasets/org/name`. Of a repository, those of its files that
/// `choose` takes from the names of all are in the folder afterwards.
///
/// # Errors
/// Fails if a name is none, or if its files cannot be had.
pub fn data_folder(root: &Path, choose: &dyn Fn(&[String]) -> Vec<String>) -> Result<PathBuf> {
    data_folder_by(root, choose, &Settings::of_environment())
}

pub(super) fn data_folder_by(
    root: &Path,
    choose: &dyn Fn(&[String]) -> Vec<String>,
    settings: &Settings,
) -> Result<PathBuf> {
    match HubName::of_data(root)? {
        Some(name) => Repository::new(settings, &name).fetch_chosen(choose),
        None => Ok(root.to_path_buf()),
    }
}

/// Returns the files of the repository that the root of a data set means; `None` for a folder.
///
/// # Errors
/// Fails if a name is none, or if the Hub or the cache does not know it.
pub fn data_files(root: &Path) -> Result<Option<DataFiles>> {
    let settings = Settings::of_environment();
    HubName::of_data(root)?.map(|name| Repository::new(&settings, &name).names()).transpose()
}

/// Returns the repository (`org/name`) that the root of a data set means, or whose folder in the Hub's cache it is.
pub fn repository_of(root: &Path) -> Option<String> {
    if let Ok(Some(name)) = HubName::of_data(root) {
        return Some(name.repository);
    }
    let of_cache = |part: &std::ffi::OsStr| Some(part.to_str()?.strip_prefix("datasets--")?.replace("--", "/"));
    root.iter().rev().find_map(of_cache)
}

#[cfg(test)]
mod tests;
