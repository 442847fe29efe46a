//! The runs of a results folder, and the one that a user means.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use super::RunFolder;

impl RunFolder {
    /// Finds the run that the user names by its folder, by the start of its id, by settings, or not at all (the latest
    /// finished one).
    pub fn find(results: &Path, named: Option<&str>) -> Result<RunFolder> {
        let runs = results.join("runs");
        let Some(named) = named else { return latest(&runs) };
        let direct = PathBuf::from(named);
        if RunFolder::at(direct.clone()).is_run() {
            let path = direct.canonicalize().with_context(|| format!("{}: cannot open", direct.display()))?;
            return Ok(RunFolder { path });
        }
        let found = all_runs(&runs)?;
        let those = |fit: &dyn Fn(&RunFolder) -> bool| found.iter().filter(|run| fit(run)).collect::<Vec<_>>();
        let ways: [&dyn Fn(&RunFolder) -> bool; 3] =
            [&|run| run.id() == named, &|run| run.id().starts_with(named), &|run| run.has_settings(named)];
        let matching = ways.into_iter().map(those).find(|matching| !matching.is_empty()).unwrap_or_default();
        match matching[..] {
            [run] => Ok(run.clone()),
            [] => bail!(
                "no run `{named}`: neither a run folder, nor an id or settings (svgd,rank=4,seed=1) of a run below {}",
                runs.display()
            ),
            _ => bail!(
                "`{named}` fits {} runs below {}: give more of the id or of the settings, or the folder",
                matching.len(),
                runs.display()
            ),
        }
    }

    /// Returns whether the folder is that of a run: it has one of the files that a run has.
    fn is_run(&self) -> bool {
        let files =
            [self.config(), self.posterior(), self.resume_file(), self.record(), self.history(), self.metrics()];
        files.iter().any(|file| file.is_file())
    }

    /// Returns all runs below a results folder, sorted.
    ///
    /// # Errors
    /// Fails if the folders cannot be listed.
    pub fn all(results: &Path) -> Result<Vec<RunFolder>> {
        all_runs(&results.join("runs"))
    }
}

/// Returns the finished run whose posterior is the youngest. Trials of sweeps do not count.
fn latest(runs: &Path) -> Result<RunFolder> {
    let finished = all_runs(runs)?.into_iter().filter(|run| run.is_finished() && run.trial().is_none());
    let latest = finished.max_by_key(|run| modified(&run.posterior()));
    latest.with_context(|| {
        format!("no finished run below {} (trials of sweeps do not count): run `bella train --config FILE` first, or name a run", runs.display())
    })
}

/// Returns all run folders below `results/runs`, sorted.
fn all_runs(runs: &Path) -> Result<Vec<RunFolder>> {
    let mut found = Vec::new();
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    for experiment in folders(runs) {
        let inside = folders(&experiment).into_iter().map(|path| RunFolder { path });
        found.extend(inside.filter(RunFolder::is_run));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}
