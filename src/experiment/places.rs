//! The places of the files that an experiment is made from. They are no part of what a run is: the files may be moved, or be copied to
//! another machine with the run, and the command line then says where they are.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Experiment;

/// The keys of the places, where `*` stands for the one entry of a table.
pub const PLACES: [&str; 6] = [
    "checkpoint.path",
    "checkpoint.tokenizer",
    "head.*.weights",
    "head.*.class_names_file",
    "data.*.root",
    "data.*.cache",
];

/// The one among them that is made where nothing is.
const CACHE: &str = "data.*.cache";

/// Returns whether a key, written in full, is one of a place.
pub fn is_place(key: &str) -> bool {
    PLACES.iter().any(|place| fits(place, key))
}

fn fits(place: &str, key: &str) -> bool {
    let (wanted, found): (Vec<&str>, Vec<&str>) = (place.split('.').collect(), key.split('.').collect());
    wanted.len() == found.len() && wanted.iter().zip(&found).all(|(wanted, found)| *wanted == "*" || wanted == found)
}

/// The keys of a run's config that a command lets the user change.
#[derive(Clone, Copy, Default, PartialEq)]
pub enum Scope {
    /// The keys that change no number of the training, among which are those of the test set.
    #[default]
    Tests,
    /// The keys of the places of the run's files, and that of the particles that go through the network at once.
    Places,
}

impl Scope {
    /// Returns whether a key, written in full, may be changed.
    pub fn has(self, key: &str) -> bool {
        let of_tests = key.starts_with("data.") || key == "train.precision";
        is_place(key) || key == "train.particle_chunk" || (self == Scope::Tests && of_tests)
    }

    /// Returns the keys that may be changed, as a text.
    pub fn keys(self) -> String {
        let places = PLACES.iter().filter(|place| self == Scope::Places || !place.starts_with("data."));
        let others: &[&str] = match self {
            Scope::Tests => &["data.*", "train.particle_chunk", "train.precision"],
            Scope::Places => &["train.particle_chunk"],
        };
        let all: Vec<&str> = places.chain(others).copied().collect();
        let (last, others) = all.split_last().expect("there are keys");
        format!("{} and {last}", others.join(", "))
    }
}

/// A place of an experiment at which there is nothing.
#[derive(Debug, PartialEq)]
pub struct Missing {
    /// The key, written in full.
    pub key: String,
    pub path: PathBuf,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Missing { key, path } = self;
        write!(
            f,
            "{key}: {}: no such file or folder: if it was moved, --set {key}=PATH says where it is",
            path.display()
        )
    }
}

impl Experiment {
    /// Returns the first place of the table `checkpoint`, `head` or `data` at which there is nothing. Names of downloads are no paths.
    pub fn missing(&self, table: &str) -> Option<Missing> {
        let settings = self.resolved();
        let places = PLACES.iter().filter(|place| **place != CACHE && place.split('.').next() == Some(table));
        let found = places.filter_map(|place| text_at(&settings, &place.split('.').collect::<Vec<_>>()));
        let paths = found.filter(|(_, path)| !path.contains("://"));
        let mut missing = paths.map(|(key, path)| Missing { key, path: PathBuf::from(path) });
        missing.find(|Missing { path, .. }| !Path::exists(path))
    }
}

/// Returns the text at a path of keys, with its key in full.
fn text_at(table: &toml::Table, path: &[&str]) -> Option<(String, String)> {
    let [first, rest @ ..] = path else { return None };
    let (key, value) = table.iter().find(|(key, _)| *first == "*" || key == first)?;
    match value {
        toml::Value::Table(inner) => text_at(inner, rest).map(|(below, text)| (format!("{key}.{below}"), text)),
        toml::Value::String(text) if rest.is_empty() => Some((key.clone(), text.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_files() {
        assert!(["checkpoint.path", "data.cifar10.root", "head.zero-shot.weights"].into_iter().all(is_place));
        let others =
            ["checkpoint", "checkpoint.path.x", "data.root", "data.cifar10.subset", "root", "method.laplace.from"];
        assert!(!others.into_iter().any(is_place));
    }
}
