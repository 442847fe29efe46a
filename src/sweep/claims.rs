//! Several processes on one search, also on several machines that share its folder: each trial belongs to the process that
//! holds the lock of its claim, which the system releases when the process ends or is killed. What the others need to know
//! is in the run's own files; only the reason of a failure is written down here.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::trial::Trial;
use crate::base::files::{read_text, with_lock, write_atomic};

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
