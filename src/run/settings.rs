//! The settings of a run by key, the runs that a user means by some of them, and those in which a run differs from others.

use std::collections::BTreeMap;

use anyhow::Result;

use super::RunFolder;
use crate::experiment::{CHOICE_TABLES, Group};

/// The settings by key, such as `method.svgd.gamma`. A table without keys is a choice, such as `method.map`, and has no value.
pub type Settings = BTreeMap<String, String>;

impl RunFolder {
    /// Reads the settings of the resolved config.
    ///
    /// # Errors
    /// Fails if the config cannot be read.
    pub fn settings(&self) -> Result<Settings> {
        let mut settings = BTreeMap::new();
        flatten("", &self.read_config()?, &mut settings);
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
