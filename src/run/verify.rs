//! Checks a results folder for damage.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};

use super::{Record, RunFolder, all_runs};
use crate::base::tensor_file::State;
use crate::experiment::{Experiment, load_config};
use crate::predictions::Predictions;
use crate::schema::Problems;

/// The numbers of checked runs and files, and the faults found in them.
pub struct Verified {
    pub runs: usize,
    /// The number of posteriors, resume files and predictions files.
    pub files: usize,
    /// The faults, one line each, which names the file.
    pub faults: Vec<String>,
}

/// Reads every file of every run below `results` and compares it with its hash, and every config with its run's id.
///
/// # Errors
/// Fails if the folder has no runs.
pub fn verify(results: &Path) -> Result<Verified> {
    let runs = all_runs(&results.join("runs"))?;
    ensure!(!runs.is_empty(), "{}: no run to check: name a results folder", results.join("runs").display());
    let mut found = Verified { runs: runs.len(), files: 0, faults: Vec::new() };
    runs.iter().for_each(|run| verify_run(run, &mut found));
    Ok(found)
}

fn verify_run(run: &RunFolder, found: &mut Verified) {
    let mut file_hashes = None;
    if run.posterior().is_file() {
        found.files += 1;
        let read = State::read(&run.posterior()).and_then(|state| state.text("file_hashes"));
        file_hashes = found.keep(read.context("the posterior cannot be used (`bella train --force` trains it again)"));
        found.keep(Record::read(run).context("the run's record cannot be used"));
    }
    found.keep(check_config(run, file_hashes));
    if let Some(file) = run.found_resume_file() {
        found.files += 1;
        let read = State::read(&file).and_then(|state| state.text("data"));
        found.keep(read.context("training cannot go on from its resume file (--force starts anew)"));
    }
    let entries = std::fs::read_dir(run.path().join("predictions")).into_iter().flatten().flatten();
    let mut predictions: Vec<_> = entries.map(|entry| entry.path()).collect();
    predictions.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    predictions.sort();
    for path in predictions {
        found.files += 1;
        found.keep(Predictions::open(&path));
    }
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
            let experiment = Experiment::read(&tree).map_err(problems)?;
            let unknown = || format!("{}: cannot be checked", run.config().display());
            experiment.file_hashes().with_context(unknown)?.to_string()
        }
    };
    run.check_config(&file_hashes)
}
