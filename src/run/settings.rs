//! The settings of a run by key, the runs that a user means by some of them, and those in which a run differs from others.
//!
//! The file `run.json` records the versions, the device and the cost of a run.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::RunFolder;
use crate::base::files::{read_text, write_atomic};
use crate::base::hash::{check_json, seal_json};
use crate::base::tensor_file::RUN;
use crate::data::overlap::Overlap;
use crate::experiment::{CHOICE_TABLES, Group};

/// The settings by key, such as `method.svgd.gamma`. A table without keys is a choice, such as `method.map`, and has no value.
pub type Settings = BTreeMap<String, String>;

impl RunFolder {
    /// Reads the settings of the resolved config.
    ///
    /// # Errors
    /// Fails if the config cannot be read.
    pub fn settings(&self) -> Result<Settings> {
        self.settings_in(&self.config_text()?)
    }

    /// Reads the settings in the text of the resolved config.
    ///
    /// # Errors
    /// Fails if the text is not TOML.
    pub fn settings_in(&self, config: &str) -> Result<Settings> {
        let mut settings = BTreeMap::new();
        flatten("", &self.table_in(config)?, &mut settings);
        Ok(settings)
    }

    /// Returns the settings that the run shares with other seeds, from its stored config.
    ///
    /// # Errors
    /// Fails if the config cannot be read.
    pub fn group(&self, file_hashes: &str) -> Result<Group> {
        Group::of(self.read_config()?, file_hashes)
    }
}

/// Returns whether `settings` have all of `words`, such as `svgd,rank=4,seed=1`: `KEY=VALUE` with the end of a key,
/// `TABLE=CHOICE`, such as `method=svgd`, or the name of the experiment, a method, a subspace or another chosen entry.
pub fn fits(settings: &Settings, words: &str) -> bool {
    words.split(',').map(str::trim).all(|word| match word.split_once('=') {
        Some((key, value)) => {
            let stored = settings.iter().any(|(path, stored)| is_end(path, key) && equal(stored, value));
            stored || choice(settings, key) == Some(value)
        }
        None => {
            let is_named = settings.get("name").is_some_and(|name| name == word);
            is_named || settings.keys().any(|path| path.split('.').nth(1) == Some(word))
        }
    })
}

/// Returns the value of a setting, which is named by the end of its key or by the table of a choice.
pub fn value<'a>(settings: &'a Settings, key: &str) -> Option<&'a str> {
    let stored = || settings.iter().find(|(path, _)| is_end(path, key)).map(|(_, stored)| single(stored));
    choice(settings, key).or_else(stored)
}

/// Returns the entry that is chosen in one of the choice tables: `svgd` for `method`.
pub fn choice<'a>(settings: &'a Settings, table: &str) -> Option<&'a str> {
    let mut words = settings.keys().map(|path| path.split('.'));
    words.find_map(|mut words| (CHOICE_TABLES.contains(&table) && words.next() == Some(table)).then(|| words.next())?)
}

/// Returns the settings in which a run differs from some of `others`, in words: `seed=2 gamma=0.1`. The method is left out.
/// Settings of a choice, such as those of `[method.svgd]`, are compared with runs of the same choice alone.
pub fn distinction(own: &Settings, others: &[&Settings]) -> String {
    let table = |path: &str| CHOICE_TABLES.into_iter().find(|table| path.split('.').next() == Some(table));
    let mut words = Vec::new();
    for (path, stored) in own.iter().filter(|(path, _)| *path != "name") {
        let is_fellow = |other: &&&Settings| table(path).is_none_or(|table| choice(other, table) == choice(own, table));
        if others.iter().filter(is_fellow).any(|other| other.get(path) != Some(stored)) {
            let word = format!("{}={}", path.rsplit('.').next().unwrap_or(path), single(stored));
            // The seed comes first, since the end of a long line may be cut off.
            let at = if path == "seed" { 0 } else { words.len() };
            words.insert(at, word);
        }
    }
    for table in CHOICE_TABLES.into_iter().filter(|table| *table != "method") {
        if let Some(chosen) = choice(own, table).filter(|own| others.iter().any(|o| choice(o, table) != Some(own))) {
            words.push(format!("{table}={chosen}"));
        }
    }
    words.join(" ")
}

fn is_end(path: &str, key: &str) -> bool {
    path == key || path.strip_suffix(key).is_some_and(|rest| rest.ends_with('.'))
}

/// Returns the only item of a list, or the value as it is.
fn single(stored: &str) -> &str {
    let inner = stored.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.filter(|inner| !inner.contains([',', '['])).unwrap_or(stored)
}

/// Returns whether a stored value is the one that the user wrote: as text, as a number, or as the only item of a list.
fn equal(stored: &str, written: &str) -> bool {
    let stored = single(stored);
    let same_number = stored.parse::<f64>().is_ok_and(|number| written.parse::<f64>() == Ok(number));
    stored == written || same_number
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut Settings) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) if !inner.is_empty() => flatten(&path, inner, into),
            toml::Value::String(text) => drop(into.insert(path, text.clone())),
            other => drop(into.insert(path, other.to_string())),
        }
    }
}

/// The context of a run and its cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The id of the run, which [`write`](Self::write) sets.
    pub run: String,
    pub bella_version: String,
    /// The commit of the source tree that bella was built from, if that was a git checkout.
    pub commit: String,
    pub libtorch_version: String,
    /// The commit of the checkpoint, if it is a repository's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_commit: Option<String>,
    /// The commit of the data set, if it is a repository's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_commit: Option<String>,
    /// The hash of the training samples, if they come from the user's own files (see `DataSpec::contents`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_contents: Option<String>,
    pub device: String,
    /// The number of processes that trained together.
    pub processes: usize,
    /// The number of libtorch threads of each process.
    pub threads: i32,
    pub precision: String,
    pub particles: i64,
    pub parameters_per_particle: i64,
    pub trainable_parameters: i64,
    pub train_samples: usize,
    pub validation_samples: usize,
    pub epochs: usize,
    pub steps: usize,
    /// The seconds of training, over all interruptions; of runs that were trained together, this one's share.
    pub wall_seconds: f64,
    /// The processor seconds of training of the process with all its threads, over all interruptions; absent where they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_seconds: Option<f64>,
    /// The number of training images per second, counted once for each particle.
    pub images_per_second: f64,
    pub peak_memory_bytes: Option<u64>,
    /// The largest amount of memory that was planned, for comparison with the peak.
    pub planned_memory_bytes: Option<u64>,
    /// The number of the epoch whose particles became the posterior, from 1.
    pub selected_epoch: usize,
    /// The relative difference of the native forward pass from the archive's own, if that ran.
    pub self_check_difference: Option<f64>,
    /// The test images of the run's own test sets that are among the training images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlap: Vec<Overlap>,
}

impl Record {
    pub fn write(&self, run: &RunFolder) -> Result<()> {
        let text = seal_json(
            &serde_json::to_string_pretty(&Record { run: run.id(), ..self.clone() })
                .context("cannot write run.json")?,
        );
        write_atomic(&run.record(), |file| {
            use std::io::Write;
            Ok(file.write_all(text.as_bytes())?)
        })
    }

    /// Reads run.json.
    ///
    /// # Errors
    /// Fails if the file is missing, is damaged, or belongs to another run.
    pub fn read(run: &RunFolder) -> Result<Record> {
        serde_json::from_value(Record::read_entries(run)?)
            .with_context(|| format!("{}: damaged", run.record().display()))
    }

    /// Reads the entries of run.json.
    ///
    /// # Errors
    /// Fails if the file is missing, is damaged, or belongs to another run.
    pub fn read_entries(run: &RunFolder) -> Result<serde_json::Value> {
        let path = run.record();
        let text = read_text(&path).with_context(|| format!("{}: cannot read", path.display()))?;
        check_json(&text).with_context(|| path.display().to_string())?;
        let record: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{}: damaged", path.display()))?;
        run.check_owner(&path, record.get(RUN).and_then(serde_json::Value::as_str))?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::seal_toml;

    fn settings(config: &str) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.toml"), seal_toml(config)).unwrap();
        RunFolder::at(folder.path().to_path_buf()).settings().unwrap()
    }

    #[test]
    fn settings_tell_a_run() {
        let run = settings(
            "name = \"mine\"\nseed = 1\n[method.svgd]\ngamma = 0.01\n[method.svgd.extra]\n[subspace.low-rank]\nrank = 4\n\
             [optimizer.adamw]\nlr = [0.001]\n[head.linear]\n",
        );
        let own = ["svgd,rank=4,seed=1", "mine", "linear", "lr=1e-3", "method.svgd.gamma=0.01", "low-rank, seed=1"];
        for words in own.into_iter().chain(["method=svgd", "subspace=low-rank,seed=1"]) {
            assert!(fits(&run, words), "{words}");
        }
        for other in ["svgd,rank=8", "ivon", "seed=10", "amma=0.01", "rank", "seed=", "", "method=map", "extra=svgd"] {
            assert!(!fits(&run, other), "{other}");
        }
        assert_eq!([value(&run, "method"), value(&run, "lr"), value(&run, "x")], [Some("svgd"), Some("0.001"), None]);
    }

    #[test]
    fn a_run_differs_by_the_keys_that_others_have_too() {
        let run = |seed: u32, rest: &str| settings(&format!("name = \"mine\"\nseed = {seed}\n{rest}"));
        let svgd = run(1, "[method.svgd]\ngamma = 0.1\nparticles = 5\n[subspace.low-rank]\nrank = 4\n");
        let map = run(2, "[method.map]\n[subspace.full]\n");
        assert_eq!(distinction(&svgd, &[&svgd, &map]), "seed=1 subspace=low-rank");
        assert_eq!(distinction(&map, &[&svgd, &map]), "seed=2 subspace=full");
        let other = run(1, "[method.svgd]\ngamma = 0.2\nparticles = 5\n[subspace.low-rank]\nrank = 4\n");
        assert_eq!(distinction(&svgd, &[&svgd, &other]), "gamma=0.1");
        assert_eq!(distinction(&svgd, &[&svgd]), "");
    }
}
