//! The folder of a rehearsal: `<results>/rehearsal/<name>/`, apart from every real result.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::base::files::create_folder;

/// The file by which a folder is known as a rehearsal's own.
const CONFIG: &str = "rehearsal.toml";

/// Where a rehearsal keeps its files.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Of all rehearsals, with what they share.
    pub all: PathBuf,
    pub own: PathBuf,
}

impl Folder {
    /// Of the rehearsal `name` below the results folder `out`.
    pub fn new(out: &Path, name: &str) -> Folder {
        let all = out.join("rehearsal");
        let safe = name.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.=".contains(c)), "-");
        Folder { own: all.join(safe), all }
    }

    /// Makes the folder, empty.
    ///
    /// # Errors
    /// A folder that holds something else than an earlier rehearsal, or one that cannot be made.
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
        // From now on the folder is known as a rehearsal's own, also where the rehearsal stops before it has a config.
        std::fs::write(self.config(), "").with_context(|| format!("{}: cannot write", self.config().display()))
    }

    /// Removes what takes room and can be made again: data, runs. The log, the config and the table stay.
    pub fn tidy(&self) {
        for part in [self.data(), self.results(), self.uninterrupted(), self.own.join("cache"), self.own.join("report")]
        {
            // What cannot be removed is removed by the next rehearsal, which says so if it cannot either.
            let _ = std::fs::remove_dir_all(part);
        }
    }

    /// The config that the rehearsed commands read.
    pub fn config(&self) -> PathBuf {
        self.own.join(CONFIG)
    }

    pub fn data(&self) -> PathBuf {
        self.own.join("data")
    }

    /// The results folder of the rehearsed commands.
    pub fn results(&self) -> PathBuf {
        self.own.join("results")
    }

    /// The results folder of the same training without an interruption.
    pub fn uninterrupted(&self) -> PathBuf {
        self.own.join("uninterrupted")
    }

    pub fn log(&self) -> PathBuf {
        self.own.join("log.txt")
    }

    /// Stand-ins of checkpoints, which rehearsals share.
    pub fn checkpoints(&self) -> PathBuf {
        self.all.join("checkpoints")
    }

    /// Built heads, which rehearsals share.
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
