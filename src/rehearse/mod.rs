//! Rehearsals, which run everything that an experiment needs at its true sizes, except for few steps and images, with
//! stand-ins for whatever would have to be downloaded. Faults show up here, and the time, disk and memory of the real
//! experiment are known before anyone waits for it.
//!
//! A [`plan`] says which stand-ins are made ([`models`], [`folder`], [`sizes`]) and which settings of the config are
//! overridden. Data sets write their stand-ins themselves ([`crate::data::SmallSet`]).
//! [`stages`] runs bella itself, one process per stage ([`child`]). [`estimate`] computes the cost of the real
//! experiment from the measured times.

pub mod checkpoint;
pub mod child;
pub mod clip;
pub mod estimate;
pub mod evaluations;
pub mod folder;
pub mod models;
pub mod plan;
pub mod prepare;
pub mod report;
pub mod sizes;
pub mod stages;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::base::files::create_folder;
use crate::machine::Wait;
use crate::machine::device::DeviceChoice;

/// The options of a rehearsal.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the rehearsal; its folder has the same name.
    pub name: String,
    /// The results folder, which contains the folder of the rehearsal.
    pub out: PathBuf,
    /// The number of training steps.
    pub steps: usize,
    /// The number of images of each test set; by default two batches of the config's size.
    pub images: Option<usize>,
    pub scale: Scale,
    /// The shape of a stand-in, if the checkpoint's name does not tell it.
    pub shape: Option<models::Shape>,
    pub weights: WeightsFrom,
    /// The commands on the trained run, split into words, such as `eval --attack fgsm`.
    pub then: Vec<Vec<String>>,
    pub device: DeviceChoice,
    /// The number of libtorch threads in each process.
    pub threads: Option<i32>,
    /// The way in which the threads of each process wait for each other.
    pub wait: Wait,
    /// The number of threads that decode images.
    pub workers: Option<u16>,
    /// The memory that each process may hold, in GiB.
    pub memory: Option<f64>,
    /// Whether the checkpoint is loaded whatever its code calls.
    pub trust: bool,
}

/// The size of stand-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Published shapes and image sizes, and the config's batch size.
    True,
    /// A model and images that take only milliseconds.
    Tiny,
}

/// The source of a rehearsal's checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// A checkpoint made with random weights.
    StandIn,
    /// The config's own checkpoint if it exists, otherwise a stand-in.
    RealWherePresent,
}

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
