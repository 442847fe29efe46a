//! The runs in a results folder: each with its state, the settings that distinguish it from its neighbours, and its size.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Result;

use super::CLEAN;
use super::store::{Row, Table, read_own};
use crate::base::tensor_file::RUN;
use crate::predictions::Predictions;
use crate::run::settings::{Settings, choice};
use crate::run::{IMAGES, RunFolder};

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Another process is training it at this moment.
    Training {
        epochs: usize,
    },
    Trained,
    /// It can be continued; this many epochs are complete.
    Interrupted {
        epochs: usize,
    },
    /// There is nothing to continue from: it failed or was stopped before it saved.
    NotSaved,
    /// The predictions of a checkpoint without training.
    Checkpoint,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            State::Training { epochs } => write!(f, "training, {epochs} epochs done"),
            State::Trained => f.write_str("trained"),
            State::Interrupted { epochs } => write!(f, "interrupted, {epochs} epochs done"),
            State::NotSaved => f.write_str("not saved"),
            State::Checkpoint => f.write_str("checkpoint"),
        }
    }
}

/// One run of a results folder.
pub struct Summary {
    pub folder: RunFolder,
    /// The start of the hash in its id by which every command finds it.
    pub short: String,
    pub experiment: String,
    /// The sweep of which it is a trial.
    pub sweep: Option<String>,
    pub state: State,
    /// The settings by key, such as `method.svgd.gamma`; empty if the config cannot be read.
    pub settings: Settings,
    /// Why the config cannot be read, if it cannot.
    pub problem: Option<String>,
    /// The accuracy of the averaged logits on the run's own clean test set, if it was evaluated there.
    pub accuracy: Option<f64>,
    pub bytes: u64,
    /// The time of the last change.
    pub changed: SystemTime,
}

/// Returns all runs below a results folder, by experiment and id.
///
/// # Errors
/// Fails if the folders cannot be listed.
pub fn all(results: &Path) -> Result<Vec<Summary>> {
    let folders = RunFolder::all(results)?;
    let names = RunFolder::short_names(&folders);
    let named = |(folder, short)| Summary { short, ..Summary::of(folder) };
    Ok(folders.into_iter().zip(names).map(named).collect())
}

impl Summary {
    pub fn of(folder: RunFolder) -> Summary {
        let experiment = folder.path().parent().and_then(Path::file_name);
        let experiment = experiment.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (bytes, changed) = size(folder.path());
        let read = folder.config_text().and_then(|config| Ok((folder.settings_in(&config)?, config)));
        let problem = read.as_ref().err().map(|error| format!("{error:#}"));
        let (settings, config) = read.unwrap_or_default();
        let state = state(&folder, &settings);
        let accuracy = accuracy(&folder, &config);
        let (short, sweep) = (folder.id(), folder.trial());
        Summary { folder, short, experiment, sweep, state, settings, problem, accuracy, bytes, changed }
    }

    /// Returns the state in a word or two.
    pub fn short_state(&self) -> String {
        let of = self.settings.get("train.epochs").map_or(String::new(), |epochs| format!("/{epochs}"));
        match self.state {
            State::Training { epochs } => format!("training {epochs}{of}"),
            State::Interrupted { epochs } => format!("stopped {epochs}{of}"),
            State::Trained | State::NotSaved | State::Checkpoint => self.state.to_string(),
        }
    }

    /// Returns what is trained; `checkpoint` for predictions without training, and `?` where the config cannot be read.
    pub fn method(&self) -> &str {
        let untrained = if self.problem.is_some() { "?" } else { "checkpoint" };
        choice(&self.settings, "method").unwrap_or(untrained)
    }
}

/// A key in which two runs differ, with both values; an empty one if a run lacks the key.
pub struct Difference {
    pub key: String,
    pub of_first: String,
    pub of_second: String,
}

/// Returns the keys in which two runs differ.
pub fn difference(a: &Summary, b: &Summary) -> Vec<Difference> {
    let keys: BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    let value = |run: &Summary, key: &String| run.settings.get(key).cloned().unwrap_or_default();
    let both = |key: &String| Difference { key: key.clone(), of_first: value(a, key), of_second: value(b, key) };
    keys.into_iter().map(both).filter(|found| found.of_first != found.of_second).collect()
}

/// Returns the rows of a run's own `metrics.csv`; none if it was not evaluated.
///
/// # Errors
/// Fails if the file is damaged.
pub fn rows(folder: &RunFolder) -> Result<Vec<Row>> {
    if !folder.metrics().is_file() {
        return Ok(vec![]);
    }
    let table = read_of(folder, &folder.metrics())?;
    Ok((0..table.rows.len()).map(|row| row_of(&table, row)).collect())
}

/// Reads a run's `train.csv`, a row an epoch.
///
/// # Errors
/// Fails if the file is missing, is damaged, or belongs to another run.
pub fn history(folder: &RunFolder) -> Result<Table> {
    read_of(folder, &folder.history())
}

/// Reads a CSV file in the folder of a run, whose rows must be whole and be those of the run.
///
/// # Errors
/// Fails if the file is missing, is damaged, or belongs to another run.
pub fn read_of(folder: &RunFolder, file: &Path) -> Result<Table> {
    let table = read_own(file)?;
    for row in 0..table.rows.len() {
        folder.check_owner(file, table.get(row, RUN))?;
    }
    Ok(table)
}

fn row_of(table: &Table, at: usize) -> Row {
    let mut row = Row::new();
    table.columns.iter().zip(&table.rows[at]).for_each(|(column, cell)| row.push(column, cell));
    row
}

fn state(folder: &RunFolder, settings: &Settings) -> State {
    let epochs = history(folder).map_or(0, |table| table.rows.len());
    let trains = settings.keys().any(|key| key.starts_with("method."));
    match (folder.is_locked(), folder.is_finished(), folder.resume_file().is_file()) {
        (true, _, _) => State::Training { epochs },
        (false, true, _) => State::Trained,
        (false, false, true) => State::Interrupted { epochs },
        (false, false, false) if trains => State::NotSaved,
        (false, false, false) => State::Checkpoint,
    }
}

/// Returns the accuracy on the run's own clean test set as it was when the run was last evaluated on it, given the text of its config; of rows
/// that other programs wrote, that on the most images.
fn accuracy(folder: &RunFolder, config: &str) -> Option<f64> {
    let rows = rows(folder).ok().filter(|rows| !rows.is_empty())?;
    let sets = folder.data_in(config).ok()?.test_names();
    let is_own = |row: &Row| sets.iter().any(|set| row.get("set") == Some(set));
    let clean = |row: &Row| row.get("condition") == Some(CLEAN) && row.get("predictive") == Some("");
    let is_present = |row: &Row| {
        let file = row.get("set").map(|set| folder.predictions(set, CLEAN, ""));
        let images = file.and_then(|file| Predictions::described(&file, IMAGES).ok()?);
        images.is_some() && images.as_deref() == row.get("images")
    };
    let samples = |row: &Row| row.get("samples").and_then(|count| count.parse::<u64>().ok());
    // Of several test sets the first counts.
    let own =
        rows.iter().filter(|row| is_own(row) && clean(row)).rev().max_by_key(|row| (is_present(row), samples(row)));
    own?.get("accuracy_lm")?.parse().ok()
}

/// Returns the bytes of all files below a folder, and the time of the last change of one.
fn size(folder: &Path) -> (u64, SystemTime) {
    let (mut bytes, mut changed) = (0, SystemTime::UNIX_EPOCH);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(facts) = entry.metadata() else { continue };
        let (inner, at) = match facts.is_dir() {
            true => size(&entry.path()),
            false => (facts.len(), facts.modified().unwrap_or(SystemTime::UNIX_EPOCH)),
        };
        bytes += inner;
        changed = changed.max(at);
    }
    (bytes, changed)
}
