//! The folder of a rehearsal, `<results>/rehearsal/<name>/`, separate from every real result.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::base::files::create_folder;

/// The file that marks a folder as that of a rehearsal.
const CONFIG: &str = "rehearsal.toml";

/// The folders in which a rehearsal keeps its files.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The folder of all rehearsals, which also holds the files that they share.
    pub all: PathBuf,
    pub own: PathBuf,
}

impl Folder {
    /// Returns the folder of the rehearsal `name` below the results folder `out`.
    pub fn new(out: &Path, name: &str) -> Folder {
        let all = out.join("rehearsal");
        let safe = name.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.=".contains(c)), "-");
        Folder { own: all.join(safe), all }
    }

    /// Creates the folder, or empties that of an earlier rehearsal.
    ///
    /// # Errors
    /// Fails if the folder holds anything other than an earlier rehearsal, or if it cannot be created.
    pub fn clear(&self) -> Result<()> {
        let shown = self.own.display();
        if self.own.exists() {
            let is_empty = std::fs::read_dir(&self.own).is_ok_and(|mut entries| entries.next().is_none());
            if !is_empty && !self.config().is_file() {
                bail!("{shown}: this folder holds something else than a rehearsal: give another --name or --out");
            }
            std::fs::remove_dir_all(&self.own).with_context(|| format!("{shown}: cannot remove the last rehearsal"))?;
        }
        create_folder(&self.own)?;
        // This marks the folder as a rehearsal's own, even if the rehearsal stops before it has a config.
        std::fs::write(self.config(), "").with_context(|| format!("{}: cannot write", self.config().display()))
    }

    /// Removes large files that can be made again, such as data and runs. The log, the config and the table stay.
    pub fn tidy(&self) {
        for part in [self.data(), self.results(), self.uninterrupted(), self.own.join("cache"), self.own.join("report")]
        {
            // A folder that cannot be removed is left to the next rehearsal, which reports it if that fails too.
            let _ = std::fs::remove_dir_all(part);
        }
    }

    /// Returns the path of the config that the rehearsed commands read.
    pub fn config(&self) -> PathBuf {
        self.own.join(CONFIG)
    }

    pub fn data(&self) -> PathBuf {
        self.own.join("data")
    }

    /// Returns the results folder of the rehearsed commands.
    pub fn results(&self) -> PathBuf {
        self.own.join("results")
    }

    /// Returns the results folder of the same training without an interruption.
    pub fn uninterrupted(&self) -> PathBuf {
        self.own.join("uninterrupted")
    }

    pub fn log(&self) -> PathBuf {
        self.own.join("log.txt")
    }

    /// Returns the folder of the stand-ins of checkpoints, which rehearsals share.
    pub fn checkpoints(&self) -> PathBuf {
        self.all.join("checkpoints")
    }

    /// Returns the folder of built heads, which rehearsals share.
    pub fn heads(&self) -> PathBuf {
        self.all.join("heads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path(), "cifar10 n=3");
        folder.clear().unwrap();
        assert!(folder.own.ends_with("rehearsal/cifar10-n=3"));
        std::fs::remove_file(folder.config()).unwrap();
        std::fs::write(folder.own.join("metrics.csv"), "real").unwrap();
        let error = folder.clear().unwrap_err().to_string();
        assert!(error.contains("holds something else than a rehearsal"), "{error}");
        std::fs::write(folder.config(), "").unwrap();
        folder.clear().unwrap();
        assert!(!folder.own.join("metrics.csv").exists());
    }
}
