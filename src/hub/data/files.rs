//! The files of a data set in a repository: those that the Hub lists, or those that the cache knows where the Hub may not or cannot be asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail, ensure};

use crate::hub::repository::{List, Repository};
use crate::hub::settings::NO_NETWORK;

/// The files of a data set.
enum Data {
    /// The files that the Hub lists.
    Listed(Arc<List>),
    /// The files that the Hub has listed before, and the reason for which it is not asked now.
    Noted(Arc<List>, String),
    /// The folder of the cache, which another program has filled.
    Here(PathBuf),
}

/// The names of the files of a repository.
pub struct DataFiles {
    pub names: Vec<String>,
    /// Whether these are all of them, and not only those in the cache.
    pub are_all: bool,
}

impl Repository<'_> {
    /// Returns the commit that the name of a data set means: the one that the cache has, or else the Hub's, which the cache knows
    /// afterwards.
    ///
    /// # Errors
    /// Fails if neither knows the name, or if the Hub cannot be asked.
    pub fn pin(&self) -> Result<String> {
        if let Some(commit) = self.folder.commit(self.name) {
            return Ok(commit);
        }
        ensure!(!self.settings.offline, "{}", self.missing());
        let list = self.list(None)?;
        self.folder.set_commit(self.name, &list.commit)?;
        Ok(list.commit.clone())
    }

    /// Returns the files of a data set as the Hub lists them, or what the cache knows of them where the Hub may not or cannot be asked.
    ///
    /// # Errors
    /// Fails if the Hub does not know the name, or if the cache has nothing of it.
    fn data(&self) -> Result<Data> {
        let known = self.folder.commit(self.name);
        let asked = if self.settings.offline { Err(anyhow!(NO_NETWORK)) } else { self.list(known.as_deref()) };
        let error = match asked {
            Ok(list) => {
                self.folder.note_names(&list.commit, &list.files);
                return Ok(Data::Listed(list));
            }
            Err(error) => error,
        };
        let here = known.filter(|commit| self.folder.snapshot(commit).is_dir());
        match here.map(|commit| (self.folder.names(&commit), commit)) {
            None if self.settings.offline => bail!(self.missing()),
            None => Err(error),
            Some((Some(files), commit)) => Ok(Data::Noted(Arc::new(List { commit, files }), format!("{error:#}"))),
            Some((None, commit)) => {
                tracing::warn!(
                    "{}: what is in the cache is taken for all of its files, since the Hub has not told their names: {error:#}",
                    self.name
                );
                Ok(Data::Here(self.folder.snapshot(&commit)))
            }
        }
    }

    /// Returns the folder of a data set, with those of its files that `choose` takes from the names of all.
    ///
    /// # Errors
    /// Fails if they cannot be had.
    pub fn fetch_chosen(&self, choose: &dyn Fn(&[String]) -> Vec<String>) -> Result<PathBuf> {
        match self.data()? {
            Data::Listed(list) => {
                self.download(&list.commit, &choose(&list.files))?;
                self.folder.set_commit(self.name, &list.commit)?;
                Ok(self.folder.snapshot(&list.commit))
            }
            Data::Noted(list, why) => {
                let folder = self.folder.snapshot(&list.commit);
                let chosen = choose(&list.files);
                let missing: Vec<&String> = chosen.iter().filter(|file| !folder.join(file).is_file()).collect();
                ensure!(
                    missing.is_empty(),
                    "{}: {} of the {} files that are read are not in {}, {} among them: {why}",
                    self.name,
                    missing.len(),
                    chosen.len(),
                    self.settings.cache.display(),
                    missing.first().map_or("", |file| file)
                );
                Ok(folder)
            }
            Data::Here(folder) => Ok(folder),
        }
    }

    /// Returns the names of the files of a data set: of those in the cache where the Hub has not told them.
    ///
    /// # Errors
    /// Fails if the Hub does not know the name, or if the cache has nothing of it.
    pub fn names(&self) -> Result<DataFiles> {
        match self.data()? {
            Data::Listed(list) | Data::Noted(list, _) => Ok(DataFiles { names: list.files.clone(), are_all: true }),
            Data::Here(folder) => {
                let mut names = Vec::new();
                below(&folder, "", &mut names);
                Ok(DataFiles { names, are_all: false })
            }
        }
    }
}

/// Adds the names of the files below a folder, with the folders before them.
fn below(folder: &Path, before: &str, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{before}{}", entry.file_name().to_string_lossy());
        match entry.path().is_dir() {
            true => below(&entry.path(), &format!("{name}/"), names),
            false => names.push(name),
        }
    }
}
