//! The settings of a run by key, and the runs that a user means by some of them.

use std::collections::BTreeMap;

use anyhow::Result;

use super::RunFolder;
use crate::experiment::Group;

/// The settings by key, such as `method.svgd.gamma`.
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

    /// Returns whether the run has all of the settings `words`, such as `svgd,rank=4,seed=1`: `KEY=VALUE` with the end of a
    /// key, or the name of the experiment, a method, a subspace or another chosen entry.
    pub(super) fn has_settings(&self, words: &str) -> bool {
        let Ok(settings) = self.settings() else { return false };
        words.split(',').map(str::trim).all(|word| match word.split_once('=') {
            Some((key, value)) => {
                let ends = |path: &str| path == key || path.strip_suffix(key).is_some_and(|rest| rest.ends_with('.'));
                settings.iter().any(|(path, stored)| ends(path) && equal(stored, value))
            }
            None => {
                let is_named = settings.get("name").is_some_and(|name| name == word);
                is_named || settings.keys().any(|path| path.split('.').nth(1) == Some(word))
            }
        })
    }
}

/// Returns whether a stored value is the one that the user wrote: as text, as a number, or as the only item of a list.
fn equal(stored: &str, written: &str) -> bool {
    let stored = stored.trim_start_matches('[').trim_end_matches(']');
    let same_number = stored.parse::<f64>().is_ok_and(|number| written.parse::<f64>() == Ok(number));
    stored == written || same_number
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut Settings) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            // A table without keys is a choice, such as [method.map].
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

    #[test]
    fn settings_tell_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let config = "name = \"mine\"\nseed = 1\n[method.svgd]\ngamma = 0.01\n[method.svgd.extra]\n[subspace.low-rank]\nrank = 4\n\
                      [optimizer.adamw]\nlr = [0.001]\n[head.linear]\n";
        std::fs::write(folder.path().join("config.toml"), seal_toml(config)).unwrap();
        let run = RunFolder::at(folder.path().to_path_buf());
        for fits in ["svgd,rank=4,seed=1", "mine", "linear", "lr=1e-3", "method.svgd.gamma=0.01", "low-rank, seed=1"] {
            assert!(run.has_settings(fits), "{fits}");
        }
        for other in ["svgd,rank=8", "ivon", "seed=10", "amma=0.01", "rank", "seed=", ""] {
            assert!(!run.has_settings(other), "{other}");
        }
    }
}
