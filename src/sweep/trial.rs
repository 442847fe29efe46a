//! One trial: a run with settings of its own, judged by the validation columns of its `train.csv`.
//!
//! Several processes may work on one search, also on several machines that share its folder: each trial belongs to the process
//! that holds the lock of its claim, which the system releases when the process ends or is killed. What the others need to know
//! is in the run's own files; only the reason of a failure is written down here.

use std::fs;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::space::Axis;
use crate::base::files::{read_text, with_lock, write_atomic};
use crate::experiment::{
    Criterion, Experiment, NOTHING_TO_TRAIN, Selection, TrainSpec, Validation, full_key, load_config, load_without,
};
use crate::methods::Origin;
use crate::results::runs::history;
use crate::results::store::Table;
use crate::run::RunFolder;
use crate::train::HAS_POSTERIOR;

/// The error that a search makes no sense: a mistake of the user.
#[derive(Debug)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn refuse(why: String) -> Result<()> {
    Err(Refused(why).into())
}

/// A run that a search may train.
pub struct Trial {
    /// The number of the trial, from 1.
    pub number: usize,
    /// The values of the axes, as written.
    pub values: Vec<String>,
    /// The overrides of the config, `KEY=VALUE`.
    pub sets: Vec<String>,
    pub run: RunFolder,
    /// The epochs of the whole training.
    pub epochs: usize,
    select: Selection,
    pub by: Criterion,
    pub experiment: Experiment,
}

/// The validation of a trial at the epoch that training would select.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The value of the metric that trials are compared by.
    pub value: f64,
    pub nll: Option<f64>,
    pub accuracy: Option<f64>,
    /// The selected epoch, from 1.
    pub epoch: usize,
}

/// The config files and overrides of a search.
pub struct Base {
    pub configs: Vec<PathBuf>,
    pub sets: Vec<String>,
    /// The keys that are left out of the config.
    pub unsets: Vec<String>,
}

impl Base {
    /// Reads the config of one point of the search space.
    ///
    /// # Errors
    /// Fails with every mistake in it, if a value is not of its key's rule, or if there is nothing to choose by.
    pub fn trial(&self, number: usize, axes: &[Axis], values: &[String], out: &Path) -> Result<Trial> {
        self.check_unsets(axes)?;
        let own = axes.iter().zip(values).map(|(axis, value)| format!("{}={value}", axis.key));
        let sets: Vec<String> = self.sets.iter().cloned().chain(own).collect();
        let read = load_without(&self.configs, &sets, &self.unsets).and_then(|tree| Experiment::read(&tree));
        let experiment = read.map_err(|problems| problems.given_by("--over", self.sets.len()))?;
        let training = experiment.training.as_ref().ok_or_else(|| Refused(NOTHING_TO_TRAIN.into()))?;
        check(&experiment, axes)?;
        let TrainSpec { epochs, select, select_by: by, .. } = training.train;
        let run = RunFolder::of(out, &experiment)?;
        if run.is_finished() {
            run.check_data(&experiment.data)?;
        }
        Ok(Trial { number, values: values.to_vec(), sets, run, epochs, select, by, experiment })
    }

    /// Refuses an axis of which `--unset` leaves out the key, a table around it or a key in it: its values would not act.
    fn check_unsets(&self, axes: &[Axis]) -> Result<()> {
        if self.unsets.is_empty() {
            return Ok(());
        }
        // What is wrong with the config is reported with the values of the axes.
        let Ok(tree) = load_config(&self.configs, &self.sets) else { return Ok(()) };
        let is_in = |key: &str, table: &str| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
        for unset in &self.unsets {
            let full = full_key(&tree, unset).ok().flatten().unwrap_or_else(|| unset.clone());
            let meets = |axis: &&Axis| axis.key == full || is_in(&axis.key, &full) || is_in(&full, &axis.key);
            if let Some(Axis { key, .. }) = axes.iter().find(meets) {
                return refuse(format!("--over {key}: is left out by --unset {unset}, too: give one of them"));
            }
        }
        Ok(())
    }
}

/// Refuses a search that has nothing to choose by, or whose trials are judged on different images.
fn check(experiment: &Experiment, axes: &[Axis]) -> Result<()> {
    let data = &experiment.data;
    let Some(training) = &experiment.training else { return Ok(()) };
    if data.validation == Validation::HeldOut(0.0) {
        let key = format!("data.{}.validation", data.key);
        return refuse(format!(
            "{key} = 0: a sweep chooses by held-out images, and none are held out: add --set {key}=0.1"
        ));
    }
    let method = &training.method.key;
    if training.method.spec.origin() != Origin::Training {
        return refuse(format!(
            "method.{method}: is fitted without epochs, so there is no validation of an epoch to choose by; sweep \
             the run that it is fitted to"
        ));
    }
    let acts_afterwards = |axis: &&Axis| training.method.spec.post_hoc().is_some() && axis.key.starts_with("method.");
    if let Some(axis) = axes.iter().find(acts_afterwards) {
        return refuse(format!(
            "--over {}: acts after training, which the validation of an epoch cannot show; sweep keys of the \
             optimizer, the subspace or [train]",
            axis.key
        ));
    }
    for Axis { key, .. } in axes {
        if key == "train.select_by" {
            return refuse(format!("--over {key}: trials are compared by it; use --set for one metric in all trials"));
        }
        let of_data = key.starts_with("data.") && !key.contains(".augment");
        if of_data || key == "seed" || key == "name" {
            return refuse(format!(
                "--over {key}: must leave the held-out images as they are, since trials are compared on them; use --set for \
                 one value in all trials"
            ));
        }
    }
    Ok(())
}

impl Trial {
    /// Returns the validation by the epochs up to `epochs`, once the run has trained that long (or to its end, where it
    /// ended earlier). It does not depend on how much longer the run has been trained. `None` too if a value is not
    /// finite.
    pub fn score(&self, epochs: usize) -> Option<Score> {
        let history = self.history()?;
        let number = |row: usize, column: &str| history.get(row, column)?.parse::<f64>().ok().filter(|x| x.is_finite());
        let rows: Vec<usize> =
            (0..history.rows.len()).filter(|row| number(*row, "epoch").is_some_and(|at| at <= epochs as f64)).collect();
        let last = *rows.last()?;
        if number(last, "epoch")? < epochs as f64 && !self.run.is_finished() {
            return None;
        }
        let column = self.by.column();
        let chosen = match self.select {
            Selection::Last => last,
            Selection::Best => {
                // Training selects among the epochs that have a posterior. Before the first of them, the others are all that there is.
                let has_posterior = |row: &usize| number(*row, HAS_POSTERIOR) == Some(1.0);
                let waits = !rows.iter().any(has_posterior);
                let offered = rows.iter().filter(|row| waits || has_posterior(row));
                let valued = offered.filter_map(|row| Some((*row, number(*row, &column)?)));
                valued.reduce(|best, one| if self.by.gains(one.1, best.1) { one } else { best })?.0
            }
        };
        Some(Score {
            value: number(chosen, &column)?,
            nll: number(chosen, "validation_nll_lm"),
            accuracy: number(chosen, "validation_accuracy_lm"),
            epoch: number(chosen, "epoch")? as usize,
        })
    }

    /// Returns whether the run needs no more training to be judged after `epochs`. After the last epoch its posterior
    /// must have been written, too.
    pub fn has_trained(&self, epochs: usize) -> bool {
        self.run.is_finished() || (epochs < self.epochs && self.reached() >= epochs)
    }

    /// Returns the number of epochs in `train.csv`.
    pub fn reached(&self) -> usize {
        self.history().map_or(0, |history| history.rows.len())
    }

    /// Returns the metric that trials are compared by, by epoch, for a picture.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let Some(history) = self.history() else { return vec![] };
        let number = |row: usize, column: &str| history.get(row, column)?.parse::<f64>().ok().filter(|x| x.is_finite());
        (0..history.rows.len())
            .filter_map(|row| Some((number(row, "epoch")?, number(row, &self.by.column())?)))
            .collect()
    }

    fn history(&self) -> Option<Table> {
        history(&self.run).ok()
    }

    /// Returns why the trial's record cannot be read, if there is one that cannot.
    pub fn fault(&self) -> Option<String> {
        let is_there = self.run.history().is_file();
        history(&self.run).err().filter(|_| is_there).map(|error| format!("{error:#}"))
    }

    /// Returns the settings of the trial in words, such as `gamma = 0.1, lr = 1e-3`.
    pub fn words(&self, axes: &[Axis]) -> String {
        let word =
            |(axis, value): (&Axis, &String)| format!("{} = {value}", axis.key.rsplit('.').next().unwrap_or(&axis.key));
        axes.iter().zip(&self.values).map(word).collect::<Vec<_>>().join(", ")
    }
}

/// The ending of the files that say why a trial failed.
const FAILED: &str = "failed";

/// This process's part in a search, until it is dropped.
pub struct Claims {
    folder: PathBuf,
    /// Locked by every process of the search, shared.
    _member: File,
    /// Whether no other process was working on the search when this one began.
    pub alone: bool,
}

/// The right to train a trial, until it is dropped.
pub struct Claim {
    _lock: File,
}

impl Claims {
    /// Joins the processes that work on the search in `folder`. The first one forgets which trials have failed, so that they
    /// are tried again.
    ///
    /// # Errors
    /// Fails if the folder cannot be written, or if its file system does not support locks.
    pub fn join(folder: &Path) -> Result<Claims> {
        let path = folder.join("members");
        with_lock(&path, || {
            let member = open(&path)?;
            let alone = is_free(&member, &path)?;
            if alone {
                let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
                for stale in entries.filter(|path| path.extension().is_some_and(|ending| ending == FAILED)) {
                    fs::remove_file(&stale).with_context(|| format!("cannot remove {}", stale.display()))?;
                }
                member.unlock()?;
            }
            member.lock_shared().with_context(|| no_locks(&path))?;
            Ok(Claims { folder: folder.to_path_buf(), _member: member, alone })
        })
    }

    /// Claims a trial. Returns `None` if another process has it.
    ///
    /// # Errors
    /// Fails if the claim's file cannot be opened or locked.
    pub fn take(&self, trial: &Trial) -> Result<Option<Claim>> {
        let path = self.file(trial, "claim");
        let lock = open(&path)?;
        Ok(is_free(&lock, &path)?.then_some(Claim { _lock: lock }))
    }

    /// Returns why a trial failed on its way to an epoch in one of the processes that work on the search.
    pub fn why_failed(&self, trial: &Trial, epochs: usize) -> Option<String> {
        let text = read_text(&self.file(trial, FAILED)).ok()?;
        let (at, why) = text.split_once('\n')?;
        (at == epochs.to_string()).then(|| why.to_string())
    }

    /// Writes down why a trial failed on its way to an epoch, before its claim ends.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn fail(&self, trial: &Trial, epochs: usize, why: &str) -> Result<()> {
        write_atomic(&self.file(trial, FAILED), |file| Ok(write!(file, "{epochs}\n{why}")?))
    }

    fn file(&self, trial: &Trial, ending: &str) -> PathBuf {
        self.folder.join(format!("trial-{}.{ending}", trial.number))
    }
}

fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    file.with_context(|| format!("cannot open the lock file {}", path.display()))
}

/// Locks a file, unless another process holds it.
fn is_free(file: &File, path: &Path) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| no_locks(path)),
    }
}

fn no_locks(path: &Path) -> String {
    format!("cannot lock {}: does its file system support locks?", path.display())
}
