//! The run folders of a results folder, and the files of each, as far as they are readable.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::base::files::listed;
use crate::results::runs::history;
use crate::results::store::Table;
use crate::run::IMAGES;
use crate::run::{Record, RunFolder, open_predictions};
use crate::schema::one_line;

/// The readable files of one run folder.
#[derive(Clone, Debug)]
pub struct RunFiles {
    pub experiment: String,
    pub run: String,
    pub folder: PathBuf,
    /// The resolved configuration from `config.toml`.
    pub config: Option<toml::Table>,
    /// The record from `run.json`. `None` if the run is not finished.
    pub record: Option<serde_json::Value>,
    /// The training curve from `train.csv`, one row per epoch.
    pub history: Option<Table>,
    pub predictions: Vec<PredictionsFile>,
}

/// A complete predictions file, described by its header.
#[derive(Clone, Debug)]
pub struct PredictionsFile {
    pub path: PathBuf,
    pub set: String,
    pub condition: String,
    /// The name of the predictive. Empty for the plain members.
    pub predictive: String,
    /// The fingerprint of the images. Empty in files from versions of bella that did not write it.
    images: String,
    samples: usize,
}

impl RunFiles {
    /// Reads the files that exist. Also returns a line for each file that could not be read.
    pub(super) fn read(experiment: &Path, folder: PathBuf) -> (Self, Vec<String>) {
        let name = |path: &Path| path.file_name().map_or(String::new(), |name| name.to_string_lossy().into());
        let mut files = Self {
            experiment: name(experiment),
            run: name(&folder),
            config: None,
            record: None,
            history: None,
            predictions: vec![],
            folder,
        };
        let problems = files.fill();
        (files, problems)
    }

    fn fill(&mut self) -> Vec<String> {
        let mut problems = vec![];
        // Each error names its file.
        let mut left_out =
            |error: anyhow::Error| problems.push(format!("{}; left out", one_line(&format!("{error:#}"))));
        let run = RunFolder::at(self.folder.clone());
        self.config = readable(&run.config(), run.read_config(), &mut left_out);
        self.record = readable(&run.record(), Record::read_entries(&run), &mut left_out);
        self.history = readable(&run.history(), history(&run), &mut left_out);
        let predictions = listed(&self.folder.join("predictions")).unwrap_or_default();
        for path in predictions.into_iter().filter(|path| path.extension().is_some_and(|e| e == "safetensors")) {
            match PredictionsFile::read(&path) {
                Ok(file) => self.predictions.push(file),
                Err(error) => left_out(error),
            }
        }
        problems
    }
}

/// Returns what was read. A file that is there and cannot be read is left out; one that is not there is no problem.
fn readable<T>(path: &Path, read: Result<T>, left_out: &mut impl FnMut(anyhow::Error)) -> Option<T> {
    read.map_err(|error| path.is_file().then(|| left_out(error))).ok()
}

impl PredictionsFile {
    /// Returns whether these are predictions of the images with this fingerprint. If one of the fingerprints is
    /// missing, the number of images decides.
    pub(super) fn is_of(&self, fingerprint: &str, count: &str) -> bool {
        let known = !fingerprint.is_empty() && !self.images.is_empty();
        let equal_counts = count.is_empty() || count == self.samples.to_string();
        if known { fingerprint == self.images } else { equal_counts }
    }

    fn read(path: &Path) -> Result<Self> {
        let predictions = open_predictions(path)?;
        let text = |key: &str| predictions.metadata().get(key).cloned().unwrap_or_default();
        let file = Self {
            path: path.to_path_buf(),
            set: text("set"),
            condition: text("condition"),
            predictive: text("predictive"),
            images: text(IMAGES),
            samples: predictions.samples(),
        };
        ensure!(!file.set.is_empty(), "predictions file {}: its header names no set", path.display());
        Ok(file)
    }
}

/// Returns the folders within a folder. Empty if the folder does not exist.
pub(super) fn folders(path: &Path) -> Vec<PathBuf> {
    listed(path).unwrap_or_default().into_iter().filter(|path| path.is_dir()).collect()
}

/// All runs in the order of their folders, found by name without a search.
#[derive(Debug, Default)]
pub struct Runs {
    all: Vec<RunFiles>,
    /// The positions of the runs of each name, which several experiments may use.
    places: HashMap<String, Vec<usize>>,
}

impl Runs {
    pub fn add(&mut self, files: RunFiles) {
        self.places.entry(files.run.clone()).or_default().push(self.all.len());
        self.all.push(files);
    }

    /// Returns the runs of this name.
    pub fn named(&self, run: &str) -> impl Iterator<Item = &RunFiles> {
        self.places.get(run).into_iter().flatten().map(|place| &self.all[*place])
    }

    /// Returns the run of this name of an experiment.
    pub fn find(&self, experiment: &str, run: &str) -> Option<&RunFiles> {
        self.named(run).find(|files| files.experiment == experiment)
    }
}

impl Deref for Runs {
    type Target = [RunFiles];

    fn deref(&self) -> &[RunFiles] {
        &self.all
    }
}

impl<'a> IntoIterator for &'a Runs {
    type Item = &'a RunFiles;
    type IntoIter = std::slice::Iter<'a, RunFiles>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}
