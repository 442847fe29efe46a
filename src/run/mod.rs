//! The folder of a run: `results/runs/<experiment>/<run-id>/` and what lies in it.

mod record;
mod verify;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sha2::{Digest, Sha256};

use crate::base::files::{create_folder, remove_leftovers, write_atomic};
use crate::experiment::{Experiment, digest_in, digest_of};

pub use record::Record;
pub use verify::{Verified, verify};

/// Letters of a predictions file's name that are kept, so that its temporary name fits into the 255 bytes of file systems.
const LONGEST_STEM: usize = 180;

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// Held while a process trains a run.
pub struct RunLock {
    _file: File,
}

impl RunFolder {
    /// Where the run of an experiment lies below `results`.
    pub fn of(results: &Path, experiment: &Experiment) -> Result<RunFolder> {
        Ok(RunFolder { path: results.join("runs").join(&experiment.name).join(experiment.run_id()?) })
    }

    /// A run that the user names by its folder, by its id, or not at all (the latest finished one).
    pub fn find(results: &Path, named: Option<&str>) -> Result<RunFolder> {
        let runs = results.join("runs");
        if let Some(named) = named {
            let direct = PathBuf::from(named);
            if direct.join("config.toml").is_file() {
                let path = direct.canonicalize().with_context(|| format!("{}: cannot open", direct.display()))?;
                return Ok(RunFolder { path });
            }
        }
        let found = all_runs(&runs)?;
        match named {
            Some(named) => {
                let exact: Vec<&RunFolder> = found.iter().filter(|run| run.id() == named).collect();
                let starting: Vec<&RunFolder> = found.iter().filter(|run| run.id().starts_with(named)).collect();
                let matching = if exact.is_empty() { starting } else { exact };
                match matching[..] {
                    [run] => Ok(run.clone()),
                    [] => bail!("no run `{named}`: neither a run folder nor an id below {}", runs.display()),
                    _ => bail!(
                        "`{named}` fits {} runs below {}: give more of the id, or its folder",
                        matching.len(),
                        runs.display()
                    ),
                }
            }
            None => {
                let finished = found.into_iter().filter(RunFolder::is_finished);
                let latest = finished.max_by_key(|run| modified(&run.posterior()));
                latest.with_context(|| {
                    format!(
                        "no finished run below {}: run `bella train --config FILE` first, or name a run",
                        runs.display()
                    )
                })
            }
        }
    }

    /// Makes the folder and stores the resolved config in it.
    pub fn create(&self, experiment: &Experiment) -> Result<()> {
        create_folder(&self.path)?;
        create_folder(&self.path.join("predictions"))?;
        let text = toml::to_string(&experiment.resolved()).context("cannot write the resolved config")?;
        write_atomic(&self.config(), |file| {
            use std::io::Write;
            Ok(file.write_all(text.as_bytes())?)
        })
    }

    /// Keeps other processes from training the same run at the same time.
    pub fn lock(&self) -> Result<RunLock> {
        let path = self.path.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {
                self.remove_leftovers();
                Ok(RunLock { _file: file })
            }
            Err(TryLockError::WouldBlock) => {
                bail!("{}: another bella process is training this run", self.path.display())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Removes what a process that was killed has left: temporary files, and the cache of first blocks.
    fn remove_leftovers(&self) {
        remove_leftovers(&self.path);
        remove_leftovers(&self.path.join("predictions"));
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("prefix") && name.ends_with(".cache") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// The cache of the first blocks' output, of one process of those that train together.
    pub fn prefix_cache(&self, rank: usize) -> PathBuf {
        self.path.join(match rank {
            0 => "prefix.cache".to_string(),
            rank => format!("prefix-{rank}.cache"),
        })
    }

    /// Checks that the stored config is the one that the run was trained with: its hash, with those of the files it was
    /// trained from, is the run's id.
    ///
    /// # Errors
    /// A config that has been changed, or that cannot be read.
    pub fn check_config(&self, file_hashes: &str) -> Result<()> {
        let (id, shown) = (self.id(), self.config().display().to_string());
        let Some(stored) = digest_in(&id) else {
            tracing::warn!("{shown}: not checked: its folder has another name than the run's id");
            return Ok(());
        };
        let text = std::fs::read_to_string(self.config()).with_context(|| format!("{shown}: cannot read"))?;
        let settings = toml::from_str(&text).map_err(|error| anyhow!("{shown}: {}", error.message()))?;
        let found = digest_of(settings, file_hashes)?;
        ensure!(
            found == stored,
            "{shown}: changed since the run was trained: its settings have the hash {found}, the run's id has {stored}: \
             undo the change, or train a run with the new settings"
        );
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
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

    /// What an interrupted run goes on from.
    pub fn resume_file(&self) -> PathBuf {
        self.path.join("resume.safetensors")
    }

    /// The name that earlier versions gave it.
    fn old_resume_file(&self) -> PathBuf {
        self.path.join("checkpoint.safetensors")
    }

    /// The file that this or an earlier version left to go on from.
    pub fn found_resume_file(&self) -> Option<PathBuf> {
        [self.resume_file(), self.old_resume_file()].into_iter().find(|path| path.is_file())
    }

    /// Removes what an earlier version left, once a newer file is there.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove_old_resume_file(&self) -> Result<()> {
        let old = self.old_resume_file();
        match std::fs::remove_file(&old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", old.display()))
            }
            _ => Ok(()),
        }
    }

    pub fn posterior(&self) -> PathBuf {
        self.path.join("posterior.safetensors")
    }

    pub fn history(&self) -> PathBuf {
        self.path.join("train.csv")
    }

    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.csv")
    }

    /// Predictions on one set under one condition; `predictive` is empty for the run's own members.
    pub fn predictions(&self, set: &str, condition: &str, predictive: &str) -> PathBuf {
        self.predictions_of(&[set, condition, predictive])
    }

    /// Predictions under a name of several parts, of which empty ones are left out.
    pub fn predictions_of(&self, parts: &[&str]) -> PathBuf {
        let safe = |text: &str| text.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)), "-");
        let parts: Vec<String> = parts.iter().filter(|t| !t.is_empty()).map(|t| safe(t)).collect();
        let mut stem = parts.join("@");
        if stem.len() > LONGEST_STEM {
            let hash: String = Sha256::digest(&stem)[..5].iter().map(|byte| format!("{byte:02x}")).collect();
            // All characters are ASCII here.
            stem = format!("{}-{hash}", &stem[..LONGEST_STEM]);
        }
        self.path.join("predictions").join(format!("{stem}.safetensors"))
    }

    /// A run is finished once its posterior is written.
    pub fn is_finished(&self) -> bool {
        self.posterior().is_file()
    }

    /// Removes what a repeated run writes anew.
    pub fn clear(&self) -> Result<()> {
        let predictions = std::fs::read_dir(self.path.join("predictions")).into_iter().flatten().flatten();
        let files = [
            self.resume_file(),
            self.old_resume_file(),
            self.posterior(),
            self.history(),
            self.metrics(),
            self.record(),
        ];
        for file in files.into_iter().chain(predictions.map(|entry| entry.path())) {
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", file.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// run.json.
    pub fn record(&self) -> PathBuf {
        self.path.join("run.json")
    }
}

/// All run folders below `results/runs`, sorted.
fn all_runs(runs: &Path) -> Result<Vec<RunFolder>> {
    let mut found = Vec::new();
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    for experiment in folders(runs) {
        let inside = folders(&experiment).into_iter().filter(|path| path.join("config.toml").is_file());
        found.extend(inside.map(|path| RunFolder { path }));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
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
