//! Checks a results folder for damage.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};

use crate::base::files::{is_there, listed, read_text};
use crate::base::hash::check_toml;
use crate::base::tensor_file::{RUN, State};
use crate::experiment::{Experiment, load_config};
use crate::predictions::{ENDING, answers, numbers};
use crate::results::runs::read_of;
use crate::results::store;
use crate::run::{Record, RunFolder};
use crate::schema::Problems;
use crate::tasks;

/// The numbers of checked runs and files, and the faults found in them.
pub struct Verified {
    pub runs: usize,
    /// The number of posteriors, resume files, files of predictions and CSV files.
    pub files: usize,
    /// The faults, one line each, which names the file.
    pub faults: Vec<String>,
}

/// Reads every file of every run below `results` and the CSV files beside them, compares them with their hashes, and
/// compares every config with its run's id.
///
/// # Errors
/// Fails if the folder has no runs.
pub fn verify(results: &Path) -> Result<Verified> {
    let runs = RunFolder::all(results)?;
    ensure!(!runs.is_empty(), "{}: no run to check: name a results folder", results.join("runs").display());
    let mut found = Verified { runs: runs.len(), files: 0, faults: Vec::new() };
    runs.iter().for_each(|run| verify_run(run, &mut found));
    verify_tables(results, &mut found);
    verify_sweeps(results, &mut found);
    Ok(found)
}

fn verify_run(run: &RunFolder, found: &mut Verified) {
    let mut file_hashes = None;
    if is_there(&run.posterior()) {
        found.files += 1;
        let read = State::read(&run.posterior()).and_then(|state| {
            run.check_owner(&run.posterior(), state.described(RUN))?;
            state.text("file_hashes")
        });
        file_hashes = found.keep(read.context("the posterior cannot be used (`bella train --force` trains it again)"));
        found.keep(Record::read(run).context("the run's record cannot be used"));
    }
    found.keep(check_config(run, file_hashes));
    let file = run.resume_file();
    if is_there(&file) {
        found.files += 1;
        let read = State::read(&file).and_then(|state| {
            run.check_owner(&file, state.described(RUN))?;
            state.text("data")
        });
        found.keep(read.context("training cannot go on from its resume file (--force starts anew)"));
    }
    for ending in [ENDING, answers::ENDING, numbers::ENDING] {
        for path in files_in(&run.path().join("predictions"), ending) {
            found.files += 1;
            let read = tasks::open(&path);
            found.keep(read.and_then(|read| run.check_owner(&path, read.metadata().get(RUN).map(String::as_str))));
        }
    }
    for path in files_in(run.path(), "csv") {
        found.files += 1;
        found.keep(match path == run.metrics() || path == run.history() {
            true => read_of(run, &path),
            false => store::read_own(&path),
        });
    }
}

/// Reads the files of the sweeps below a results folder and compares them with their hashes.
fn verify_sweeps(results: &Path, found: &mut Verified) {
    let sweeps = std::fs::read_dir(results.join("sweeps")).into_iter().flatten().flatten();
    for sweep in sweeps.map(|entry| entry.path()) {
        for path in files_in(&sweep, "csv") {
            found.files += 1;
            found.keep(store::read_own(&path));
        }
        for path in files_in(&sweep, "toml") {
            found.files += 1;
            let read = read_text(&path).map_err(anyhow::Error::from).and_then(|text| check_toml(&text));
            found.keep(read.with_context(|| path.display().to_string()));
        }
    }
}

/// Reads the CSV files of a folder and compares their rows with their hashes.
fn verify_tables(folder: &Path, found: &mut Verified) {
    for path in files_in(folder, "csv") {
        found.files += 1;
        // bella writes no file without a row: whoever removed the first one removed all.
        found.keep(store::read(&path).and_then(|table| {
            ensure!(
                !table.rows.is_empty(),
                "{}: has no row: `bella report --rebuild` makes it anew from the runs",
                path.display()
            );
            Ok(())
        }));
    }
}

/// Returns the files of a folder with an extension, sorted, without hidden ones.
fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = listed(folder).unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files
}

impl Verified {
    /// Returns the value, or records the error as a fault.
    fn keep<T>(&mut self, read: Result<T>) -> Option<T> {
        read.map_err(|error| self.faults.push(format!("{error:#}"))).ok()
    }
}

/// Checks the config of a run. If `file_hashes` is `None`, as for an unfinished run, the files that it is trained from
/// are hashed now.
fn check_config(run: &RunFolder, file_hashes: Option<String>) -> Result<()> {
    let file_hashes = match file_hashes {
        Some(known) => known,
        None => {
            let problems = |problems: Problems| anyhow!("{}", problems.to_string().replace('\n', "; "));
            let tree = load_config(&[run.config()], &[]).map_err(problems)?;
            let experiment = Experiment::read_to_evaluate(&tree).map_err(problems)?;
            let unknown = || format!("{}: cannot be checked", run.config().display());
            experiment.file_hashes().with_context(unknown)?.to_string()
        }
    };
    run.check_config(&file_hashes)
}
