//! The runs of a results folder, and the one that a user means.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use super::RunFolder;
use super::settings::{Settings, distinction, fits};
use crate::base::files::listed;
use crate::base::mapped::Mapped;
use crate::base::tensor_file::{RUN, described};
use crate::experiment::{Experiment, digest_in};
use crate::hub::commit_in;

/// The fewest digits of the hash in a run's id by which a run can be named.
const SHORTEST: usize = 5;

/// The word for the latest finished run.
pub const LATEST: &str = "latest";

/// The most runs that the error about an ambiguous name lists.
const MOST_LISTED: usize = 20;

/// The error that a name fits several runs.
#[derive(Debug)]
pub struct Ambiguous {
    text: String,
    /// The runs that the name fits, with the settings that distinguish them, one line each.
    pub runs: Vec<String>,
}

impl std::fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Ambiguous {}

impl RunFolder {
    /// Finds the run that the user names by its folder, by the start of its id (also as `EXPERIMENT/ID`) or of the hash in it, by
    /// settings, or as `latest` or not at all (the latest finished one). Of runs with one id in several experiments, a trial of a sweep
    /// counts only if all of them are.
    ///
    /// # Errors
    /// Fails if no run fits, or with [`Ambiguous`] if several do.
    pub fn find(results: &Path, named: Option<&str>) -> Result<RunFolder> {
        let runs = results.join("runs");
        let Some(named) = named.filter(|named| *named != LATEST) else { return latest(&runs) };
        let direct = PathBuf::from(named);
        if RunFolder::at(direct.clone()).is_run() {
            let path = direct.canonicalize().with_context(|| format!("{}: cannot open", direct.display()))?;
            return Ok(RunFolder { path });
        }
        let found = all_runs(&runs)?;
        let those = |fit: &dyn Fn(&RunFolder) -> bool| found.iter().filter(|run| fit(run)).collect::<Vec<_>>();
        let has_hash = |run: &RunFolder| digest_in(&run.id()).is_some_and(|hash| hash.starts_with(named));
        let is_plain = |run: &RunFolder| run.id() == named && run.trial().is_none();
        let ways: [&dyn Fn(&RunFolder) -> bool; 6] = [
            &is_plain,
            &|run| run.id() == named,
            &|run| named.contains('/') && run.in_experiment().starts_with(named),
            &|run| run.id().starts_with(named),
            &|run| named.len() >= SHORTEST && has_hash(run),
            &|run| run.settings().is_ok_and(|settings| fits(&settings, named)),
        ];
        let matching = ways.into_iter().map(those).find(|matching| !matching.is_empty()).unwrap_or_default();
        match matching[..] {
            [run] => Ok(run.clone()),
            [] => bail!(
                "no run `{named}`: neither a run folder, nor an id or settings (svgd,rank=4,seed=1) of a run below {}, nor `latest`",
                runs.display()
            ),
            _ => Err(ambiguous(named, &runs, &matching).into()),
        }
    }

    /// Returns the short names of `runs`, by which [`find`](Self::find) finds them: the first digits of the hash in the
    /// run's id, as many as distinguish it from the others; the whole id for a run whose folder was renamed.
    pub fn short_names(runs: &[RunFolder]) -> Vec<String> {
        let ids: Vec<String> = runs.iter().map(RunFolder::id).collect();
        let mut hashes: Vec<&str> = ids.iter().filter_map(|id| digest_in(id)).collect();
        hashes.sort_unstable();
        let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        let name = |id: &String| {
            let hash = digest_in(id)?;
            let at = hashes.partition_point(|other| *other < hash);
            let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| hashes.get(at));
            let digits = neighbours.map(|other| shared(hash, other) + 1).max().unwrap_or(0).max(SHORTEST);
            hash.get(..digits).map(String::from)
        };
        ids.iter().map(|id| name(id).unwrap_or_else(|| id.clone())).collect()
    }

    /// Returns the id with the experiment in front: `EXPERIMENT/ID`.
    fn in_experiment(&self) -> String {
        let experiment = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        format!("{}/{}", experiment.to_string_lossy(), self.id())
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

/// Returns the error that lists the runs that a name fits, the newest first.
fn ambiguous(named: &str, runs: &Path, matching: &[&RunFolder]) -> Ambiguous {
    let ids: BTreeSet<String> = matching.iter().map(|run| run.id()).collect();
    let share_id = ids.len() < matching.len();
    let way_out =
        if share_id { "name one as EXPERIMENT/ID" } else { "give more of the id or of the settings, or the folder" };
    let text = format!("`{named}` fits {} runs below {}: {way_out}", matching.len(), runs.display());
    let mut newest = matching.to_vec();
    newest.sort_by_key(|run| std::cmp::Reverse(modified(&run.history())));
    let settings: Vec<Settings> = newest.iter().map(|run| run.settings().unwrap_or_default()).collect();
    let all: Vec<&Settings> = settings.iter().collect();
    let name = |run: &RunFolder| if share_id { run.in_experiment() } else { run.id() };
    let line = |(run, own): (&&RunFolder, &Settings)| format!("{}  {}", name(run), distinction(own, &all));
    let mut lines: Vec<String> = newest.iter().zip(&settings).map(line).take(MOST_LISTED).collect();
    lines.extend((matching.len() > MOST_LISTED).then(|| format!("and {} more", matching.len() - MOST_LISTED)));
    Ambiguous { text, runs: lines }
}

/// Returns the finished run whose posterior is the youngest. Trials of sweeps do not count, and a folder with the posterior of another run, such
/// as a copy, only where there is no other.
fn latest(runs: &Path) -> Result<RunFolder> {
    let mut finished = all_runs(runs)?;
    finished.retain(|run| run.is_finished() && run.trial().is_none());
    finished.sort_by_cached_key(|run| modified(&run.posterior()));
    // The posteriors of earlier runs are not looked into.
    let latest = finished.iter().rfind(|run| !run.is_of_another()).or(finished.last());
    latest.cloned().with_context(|| {
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

impl RunFolder {
    /// Returns whether the posterior says that it belongs to another run.
    fn is_of_another(&self) -> bool {
        let file = std::fs::File::open(self.posterior()).ok();
        let map = file.and_then(|file| Mapped::new(&file, &self.posterior()).ok());
        map.and_then(|map| described(&map, RUN).ok()?).is_some_and(|run| run != self.id())
    }
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

impl RunFolder {
    /// Returns the finished run of the same settings whose checkpoint or data set is another commit of the same repository.
    pub fn of_another_commit(&self, experiment: &Experiment) -> Option<Moved> {
        let mut ours = experiment.resolved();
        let named = take_names(&mut ours);
        let mut beside = listed(self.path.parent()?).ok()?.into_iter().map(RunFolder::at);
        beside.find_map(|run| {
            let mut theirs = run.read_config().ok().filter(|_| run.is_finished())?;
            let others = take_names(&mut theirs);
            let repository = |name: &str| name.split('@').next().map(str::to_string);
            let is_same = ours == theirs
                && named.len() == others.len()
                && named.iter().zip(&others).all(|(a, b)| a.0 == b.0 && repository(&a.1) == repository(&b.1));
            let (key, name) = named.iter().zip(&others).find(|(a, b)| a != b).filter(|_| is_same)?.0;
            Some(Moved { run, key: key.clone(), commit: commit_in(name)? })
        })
    }
}

/// A run that differs in the commit of a repository alone.
pub struct Moved {
    pub run: RunFolder,
    /// The key that names the repository.
    pub key: String,
    /// The commit that the repository is at now.
    pub commit: String,
}

/// Takes the names with commits out of resolved settings: keys and values.
fn take_names(settings: &mut toml::Table) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut take = |table: &mut toml::Value, before: String, key: &str| {
        let toml::Value::Table(table) = table else { return };
        let name = table.get(key).and_then(toml::Value::as_str).filter(|name| commit_in(name).is_some());
        if let Some(name) = name.map(str::to_string) {
            table.remove(key);
            found.push((format!("{before}.{key}"), name));
        }
    };
    if let Some(checkpoint) = settings.get_mut("checkpoint") {
        take(checkpoint, "checkpoint".into(), "path");
    }
    if let Some(toml::Value::Table(sets)) = settings.get_mut("data") {
        sets.iter_mut().for_each(|(set, table)| take(table, format!("data.{set}"), "root"));
    }
    found
}
