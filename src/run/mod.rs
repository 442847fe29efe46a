//! The folder of a run, `results/runs/<experiment>/<run-id>/`, and the files in it.

mod cost;
mod files;
mod find;
pub mod settings;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::base::files::{create_folder, listed, remove_leftovers, write_atomic};
use crate::base::hash::seal_toml;
use crate::experiment::Experiment;
use crate::predictions::{ENDING, answers, numbers};

pub use cost::Cost;
pub use files::{open_answers, open_outcome, open_predictions};
pub use find::{Ambiguous, LATEST};
pub use settings::Record;

/// The metadata key of the fingerprint of the images that were predicted.
pub const IMAGES: &str = "images";

/// The number of characters of a predictions file's name that are kept, so that its temporary name fits into the 255
/// bytes that file systems allow.
const LONGEST_STEM: usize = 180;

/// The files of analyses of a run's particles, in its folder: the plane through three of them, its particles and its picture; how similar all
/// are; and how much each training image matters.
pub const LANDSCAPE: [&str; 3] = ["landscape.csv", "landscape-particles.csv", "landscape.svg"];
pub const SIMILARITY: &str = "similarity.csv";
pub const SENSITIVITY: &str = "sensitivity.csv";

/// The start of the names of TensorBoard's event files.
const EVENTS: &str = "events.out.tfevents.";

/// The end of the message of a process that finds the run of another one.
pub const TRAINED_ELSEWHERE: &str = "another bella process is training this run";

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// A lock that a process holds while it trains a run.
pub struct RunLock {
    _file: File,
}

impl RunFolder {
    /// Returns the folder of an experiment's run below `results`.
    pub fn of(results: &Path, experiment: &Experiment) -> Result<RunFolder> {
        Ok(RunFolder { path: results.join("runs").join(&experiment.name).join(experiment.run_id()?) })
    }

    /// Returns the run whose folder lies at `path`.
    pub fn at(path: PathBuf) -> RunFolder {
        RunFolder { path }
    }

    /// Creates the folder and stores the resolved config in it.
    pub fn create(&self, experiment: &Experiment) -> Result<()> {
        create_folder(&self.path)?;
        create_folder(&self.path.join("predictions"))?;
        let text = seal_toml(&toml::to_string(&experiment.resolved()).context("cannot write the resolved config")?);
        write_atomic(&self.config(), |file| {
            use std::io::Write;
            Ok(file.write_all(text.as_bytes())?)
        })
    }

    /// Keeps other processes from training the same run at the same time.
    pub fn lock(&self) -> Result<RunLock> {
        let path = self.path.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match patiently(&file) {
            Ok(()) => {
                self.remove_leftovers();
                Ok(RunLock { _file: file })
            }
            Err(TryLockError::WouldBlock) => {
                bail!("{}: {TRAINED_ELSEWHERE}", self.path.display())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Returns whether another process is training this run.
    pub fn is_locked(&self) -> bool {
        let file = File::open(self.path.join("lock"));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Removes the files that a killed process has left: temporary files, notes of steps, and the cache of the first blocks.
    fn remove_leftovers(&self) {
        let _ = std::fs::remove_file(self.notes());
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("prefix") && name.ends_with(".cache") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Removes the temporary files that killed processes have left in the run's folders.
    pub fn remove_temporaries(&self) {
        remove_leftovers(&self.path);
        remove_leftovers(&self.path.join("predictions"));
    }

    /// Returns the path of the cache of the first blocks' output. Each of several processes that train together has its
    /// own.
    pub fn prefix_cache(&self, rank: usize) -> PathBuf {
        self.path.join(match rank {
            0 => "prefix.cache".to_string(),
            rank => format!("prefix-{rank}.cache"),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the results folder that holds the run, as `FOLDER/runs/EXPERIMENT/ID`; none for a run that was moved.
    pub fn results(&self) -> Option<PathBuf> {
        let path = self.path.canonicalize().ok()?;
        let runs = path.parent()?.parent()?;
        (runs.file_name()? == "runs").then(|| runs.parent().map(Path::to_path_buf))?
    }

    pub fn id(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("log.txt")
    }

    /// Returns the path of the file from which an interrupted run continues.
    pub fn resume_file(&self) -> PathBuf {
        self.path.join("resume.safetensors")
    }

    pub fn posterior(&self) -> PathBuf {
        self.path.join("posterior.safetensors")
    }

    /// Returns the path of the losses of the steps of the current epoch, which is there while the run trains.
    pub fn notes(&self) -> PathBuf {
        self.path.join("steps.txt")
    }

    pub fn history(&self) -> PathBuf {
        self.path.join("train.csv")
    }

    /// Returns the path of the log of the command of `train.on_epoch`.
    pub fn hook_log(&self) -> PathBuf {
        self.path.join("on_epoch.log")
    }

    /// Returns TensorBoard's event files, in the order in which they were written.
    pub fn event_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let is_of_events =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(EVENTS));
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_of_events).collect();
        files.sort();
        files
    }

    /// Returns the path of a further event file, which sorts behind the ones that exist.
    pub fn next_event_file(&self) -> PathBuf {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let taken: Vec<PathBuf> = self.event_files();
        let name = |number: usize| self.path.join(format!("{EVENTS}{seconds:010}.bella.{number:06}"));
        (taken.len()..).map(name).find(|path| taken.last().is_none_or(|last| path > last)).unwrap_or_else(|| name(0))
    }

    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.csv")
    }

    /// Returns the path of the predictions on one set under one condition; `predictive` is empty for the run's own
    /// members.
    pub fn predictions(&self, set: &str, condition: &str, predictive: &str) -> PathBuf {
        self.predicted(&[set, condition, predictive], ENDING)
    }

    /// Returns the path of what a task predicts, whose name has several parts and the ending of the task; empty parts are left out.
    pub fn predicted(&self, parts: &[&str], ending: &str) -> PathBuf {
        let safe = |text: &str| text.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)), "-");
        let parts: Vec<String> = parts.iter().filter(|t| !t.is_empty()).map(|t| safe(t)).collect();
        let mut stem = parts.join("@");
        if stem.len() > LONGEST_STEM {
            let hash: String = Sha256::digest(&stem)[..5].iter().map(|byte| format!("{byte:02x}")).collect();
            // All characters are ASCII here.
            stem = format!("{}-{hash}", &stem[..LONGEST_STEM]);
        }
        self.path.join("predictions").join(format!("{stem}.{ending}"))
    }

    /// Returns the files of predictions, answers and predicted numbers, sorted.
    ///
    /// # Errors
    /// Fails if their folder cannot be listed.
    pub fn predicted_files(&self) -> Result<Vec<PathBuf>> {
        let folder = self.path.join("predictions");
        let mut files = listed(&folder).with_context(|| format!("{}: cannot list the folder", folder.display()))?;
        let is_known =
            |end: &std::ffi::OsStr| [ENDING, answers::ENDING, numbers::ENDING].iter().any(|known| end == *known);
        files.retain(|file| file.extension().is_some_and(is_known));
        Ok(files)
    }

    /// Returns the path of the file that names the sweep of which the run is a trial and nothing else.
    fn trial_file(&self) -> PathBuf {
        self.path.join("trial")
    }

    /// Returns the name of the sweep of which the run is a trial, unless `bella train` has made the run its own since.
    pub fn trial(&self) -> Option<String> {
        std::fs::read_to_string(self.trial_file()).ok().map(|name| name.trim().to_string())
    }

    /// Says that the run is a trial of a sweep, or that it is a run like others.
    ///
    /// # Errors
    /// Fails if the file cannot be written or removed.
    pub fn set_trial(&self, sweep: Option<&str>) -> Result<()> {
        match sweep {
            None => remove(&self.trial_file()),
            Some(sweep) => write_atomic(&self.trial_file(), |file| {
                use std::io::Write;
                Ok(writeln!(file, "{sweep}")?)
            }),
        }
    }

    /// Returns whether the run is finished, that is, whether its posterior has been written.
    pub fn is_finished(&self) -> bool {
        self.posterior().is_file()
    }

    /// Checks that the run is finished.
    ///
    /// # Errors
    /// Fails if it is not.
    pub fn expect_finished(&self) -> Result<()> {
        let posterior = self.posterior();
        if !self.is_finished() && posterior.symlink_metadata().is_ok() {
            bail!("{}: is no regular file: remove it, and train the run again", posterior.display());
        }
        if !self.is_finished() {
            bail!("{}: this run is not finished: continue it with `bella train`", self.path.display());
        }
        Ok(())
    }

    /// Removes the files that a repeated run writes again, and those of analyses of its former particles.
    pub fn clear(&self) -> Result<()> {
        let predictions = std::fs::read_dir(self.path.join("predictions")).into_iter().flatten().flatten();
        let own = [self.ood(), self.conformal()];
        let files = [self.resume_file(), self.posterior(), self.history(), self.metrics(), self.record()];
        let analyses = LANDSCAPE.into_iter().chain([SIMILARITY, SENSITIVITY]).map(|name| self.path.join(name));
        let files = files.into_iter().chain(own).chain(analyses);
        let logs = self.event_files().into_iter().chain([self.hook_log()]);
        for file in files.chain(logs).chain(predictions.map(|entry| entry.path())) {
            remove(&file)?;
        }
        Ok(())
    }

    /// Removes the folder of a run that failed before its first step, with the folders around it that are empty then.
    pub fn discard(&self) {
        if std::fs::remove_dir_all(&self.path).is_ok() {
            let around = self.path.ancestors().skip(1).take(2);
            around.take_while(|folder| std::fs::remove_dir(folder).is_ok()).for_each(drop);
        }
    }

    /// Returns the path of the out-of-distribution rows of a trial, which has a file of its own.
    pub fn ood(&self) -> PathBuf {
        self.path.join("ood.csv")
    }

    /// Returns the path of the rows of conformal sets of a trial, which has a file of its own.
    pub fn conformal(&self) -> PathBuf {
        self.path.join("conformal.csv")
    }

    /// Returns the path of run.json.
    pub fn record(&self) -> PathBuf {
        self.path.join("run.json")
    }
}

/// Locks a file. A process that only asks whether the file is locked holds it for a moment, which is waited for.
fn patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..20 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    file.try_lock()
}

/// Removes a file, unless there is none.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_predictives_have_files_of_their_own() {
        let run = RunFolder { path: PathBuf::from("run") };
        let merged = |last: &str| format!("merge-mean with {}{last}", "low-rank-svgd-s1-2634fef31f, ".repeat(20));
        let file = |last: &str| run.predictions("cifar10", "clean", &merged(last)).file_name().unwrap().to_owned();
        assert!(file("a") != file("b") && file("a") == file("a"));
        // `.NAME.PID-COUNT.tmp` while it is written.
        assert!(file("a").len() < 255 - 40);
    }
}
