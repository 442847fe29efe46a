//! The settings of a config that a command changes: another test set, or keys that change no number of the training.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::layers::{full_key, full_sets};
use super::places::{Scope, is_place};
use super::{DataSpec, Experiment, load_config};
use crate::base::small::Usage;
use crate::base::small::absolute;
use crate::data::entry;
use crate::machine::Precision;
use crate::schema::{Node, Origin, Problems, Tree, Value};

/// The settings that may differ from the config.
#[derive(Clone, Default)]
pub struct Overrides {
    /// Another test set: `KEY=ROOT`, or a TOML file with a table `[data.*]`.
    pub data: Option<String>,
    /// Changed keys, `KEY=VALUE`.
    pub sets: Vec<String>,
    /// The number type to compute in.
    pub precision: Option<Precision>,
    /// The keys that may be changed where the config is that of a run.
    pub scope: Scope,
}

impl Overrides {
    /// Returns the overrides with their keys written in full, as the tables of `files` and of another test set have them.
    ///
    /// # Errors
    /// Fails with every key of which the last part is not enough.
    pub fn in_full(&self, files: &[PathBuf]) -> Result<Overrides, Problems> {
        let sets = full_sets(&self.sets, |others| self.tree(files, others).ok())?;
        Ok(Overrides { sets, ..self.clone() })
    }

    /// Returns whether one of the overrides sets `wanted`, a key in full.
    pub fn has(&self, wanted: &str) -> bool {
        self.sets.iter().any(|set| key(set) == wanted)
    }

    /// Returns the overrides that locate the run's own data, those of the data set `own`.
    pub fn roots(&self, own: &str) -> Vec<String> {
        let root = format!("data.{own}.root");
        let is_root = |set: &&String| key(set) == root;
        if self.other_set().as_deref() == Some(own) {
            return Vec::new();
        }
        self.sets.iter().filter(is_root).cloned().collect()
    }

    /// Returns the key of the other test set that is asked for. A file that cannot be read is told elsewhere.
    fn other_set(&self) -> Option<String> {
        let data = self.data.as_deref()?;
        let (name, is_named) = data.split_once('=').map_or((data, !Path::new(data).exists()), |(name, _)| (name, true));
        if is_named && entry(name).is_ok() {
            return Some(name.to_string());
        }
        load_config(&[PathBuf::from(data)], &[]).ok()?.chosen("data").map(str::to_string)
    }

    /// Returns whether the overrides keep the run's own data, those of the data set `own`, apart from its location.
    pub fn keep_data(&self, own: &str) -> bool {
        let moves = |key: &str| is_place(key) && key.split('.').nth(1) == Some(own);
        self.data.is_none() && self.sets.iter().all(|set| !is_of_data(set) || moves(key(set)))
    }

    /// Returns whether the overrides name the test set.
    fn name_data(&self) -> bool {
        self.sets.iter().any(|set| is_of_data(set) && key(set).ends_with(".label"))
    }

    /// Returns the overrides that also apply to another run, that of `config`: the location of its data, those of its checkpoint and head
    /// where nothing is at its own ones, and the number type.
    ///
    /// # Errors
    /// Fails if the config cannot be read, or with every override whose key may be several ones.
    pub fn for_another_run(&self, config: PathBuf) -> Result<Overrides> {
        let files = [config];
        let tree = load_config(&files, &[])?;
        let own = Experiment::read_to_evaluate(&tree)?;
        let missing = ["checkpoint", "head"].map(|table| own.missing(table).is_some());
        let other = self.other_set();
        let sets = self.in_full(&files)?.sets.into_iter().filter(|set| {
            let key = key(set);
            let is_moved = match key.split('.').next() {
                Some("checkpoint") => missing[0],
                Some("head") => missing[1],
                _ => key.ends_with(".root") && key.split('.').nth(1) != other.as_deref(),
            };
            is_moved && is_place(key) && is_of_own(key, &tree)
        });
        Ok(Overrides { data: None, sets: sets.collect(), precision: self.precision, scope: Scope::Places })
    }

    /// Checks that the overrides change nothing that a run was trained with.
    ///
    /// # Errors
    /// Fails with the first one that does.
    pub fn check_for_run(&self) -> Result<()> {
        if let Some(set) = self.sets.iter().find(|set| !self.scope.has(key(set))) {
            let can_be_set = self.scope.keys();
            let why = format!(
                "--set {set}: a run's settings are what it was trained with; only {can_be_set} can be set here"
            );
            return Err(Usage(why).into());
        }
        // Which images were held out, and which labels are wrong, is a fact of the training. A text names a published split.
        let of_training = |set: &&String| {
            let is_number = set.split_once('=').is_some_and(|(_, value)| value.trim().parse::<f64>().is_ok());
            key(set).ends_with(".label_noise") || (key(set).ends_with(".validation") && is_number)
        };
        match self.sets.iter().filter(|_| self.data.is_none()).find(of_training) {
            Some(set) => {
                let why =
                    format!("--set {set}: is a setting of the training, and what was held out stays so: leave it out");
                Err(Usage(why).into())
            }
            None => Ok(()),
        }
    }

    /// Reads the experiment of a run's config with the overrides.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or with every mistake in the result.
    pub fn read_run(&self, config: PathBuf) -> Result<Experiment> {
        let files = [config];
        self.check_entries(&load_config(&files, &[])?)?;
        if self.data.is_some() {
            return self.read(&files);
        }
        if !self.sets.iter().any(|set| is_of_data(set)) {
            return Ok(Experiment::read_to_evaluate(&load_config(&files, &self.sets)?)?);
        }
        let saved = DataSpec::alone(load_config(&files, &[])?)?;
        let read = load_config(&files, &self.sets).and_then(|tree| Experiment::read_to_evaluate(&tree));
        // Keys of another set may be all that it needs; where they are not, what is meant is told before what is missing.
        let mut experiment = match read {
            Ok(experiment) => experiment,
            Err(problems) => return Err(self.check_set(&saved).err().unwrap_or_else(|| problems.into())),
        };
        if !self.name_data() {
            // Results of a test set that has been changed get their own row. One that lies elsewhere keeps the name that the user gave it.
            if !self.keep_data(&saved.key) || saved.label == saved.dataset.label() {
                experiment.data.label = experiment.data.dataset.label();
            }
        }
        Ok(experiment)
    }

    /// Refuses keys of a head that is not the run's own, and where only places can be set those of another data set.
    fn check_entries(&self, own: &Tree) -> Result<()> {
        let table = |set: &str| key(set).split('.').next().unwrap_or_default().to_string();
        let is_fixed = |set: &&String| table(set) == "head" || (table(set) == "data" && self.scope == Scope::Places);
        match self.sets.iter().filter(is_fixed).find(|set| !is_of_own(key(set), own)) {
            Some(set) => {
                let table = table(set);
                let own = own.chosen(&table).unwrap_or_default();
                Err(Usage(format!("--set {set}: the run has {table}.{own}: set a key of that, or leave it out")).into())
            }
            None => Ok(()),
        }
    }

    /// Refuses keys of a set that is neither the run's own nor named by a root: that of `--ood KEY=ROOT`, which they do not reach.
    fn check_set(&self, own: &DataSpec) -> Result<()> {
        let of_set = |set: &str, name: &str| key(set).strip_prefix("data.").is_some_and(|rest| rest.starts_with(name));
        let is_known = |set: &&String| {
            let table = key(set).split('.').nth(1).unwrap_or_default();
            let root = format!("{table}.root");
            table == own.key || entry(table).is_err() || self.sets.iter().any(|other| of_set(other, &root))
        };
        let Some(set) = self.sets.iter().filter(|set| is_of_data(set)).find(|set| !is_known(set)) else {
            return Ok(());
        };
        let why = format!(
            "--set {set}: the run's own test set is data.{}: for another one write --data KEY=ROOT, and for one of --ood a TOML file with \
             its [data.*] table",
            own.key
        );
        Err(Usage(why).into())
    }

    /// Reads the experiment of config files with the overrides.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or with every mistake in the result.
    pub fn read(&self, files: &[PathBuf]) -> Result<Experiment> {
        Ok(Experiment::read_to_evaluate(&self.tree(files, &self.sets)?)?)
    }

    /// Returns the config of `files` on the test set that is asked for, with `sets`.
    fn tree(&self, files: &[PathBuf], sets: &[String]) -> Result<Tree> {
        let Some(data) = &self.data else { return Ok(load_config(files, sets)?) };
        let (mut of_data, others): (Vec<String>, Vec<String>) = sets.iter().cloned().partition(|set| is_of_data(set));
        let mut tree = load_config(files, &others)?;
        // The place of the config's own data is not one of the test set: see `roots`.
        let other = self.other_set();
        let is_of_other = |key: &str| key.split('.').nth(1) == other.as_deref();
        of_data.retain(|set| is_of_other(key(set)) || !is_place(key(set)) || !is_of_own(key(set), &tree));
        replace_data(&mut tree, data, of_data)?;
        Ok(tree)
    }
}

/// Reads the experiment of a run's config on another data set, given as `KEY=ROOT` or a TOML file.
///
/// # Errors
/// Fails if either cannot be read, or with every mistake in the result.
pub fn on_other_data(config: &Path, data: &str) -> Result<Experiment> {
    let mut tree = load_config(&[config.to_path_buf()], &[])?;
    replace_data(&mut tree, data, vec![])?;
    Ok(Experiment::read_to_evaluate(&tree)?)
}

fn replace_data(tree: &mut Tree, data: &str, sets: Vec<String>) -> Result<()> {
    let (Value::Table(all), Value::Table(mut new)) = (&mut tree.root.value, data_table(data, sets)?.root.value) else {
        unreachable!("the root of a config is a table")
    };
    match new.remove("data") {
        Some(table) => drop(all.insert("data".into(), table)),
        None => return Err(Usage(format!("{data}: the file has no [data.*] table")).into()),
    }
    Ok(())
}

/// Reads the config for `KEY=ROOT`, for the `KEY` of a data set without files, or for a file, with the overrides of `data.*`.
///
/// # Errors
/// Fails if the data set is unknown, or with every mistake in the file.
pub fn data_table(data: &str, mut sets: Vec<String>) -> Result<Tree> {
    let Some((key, root)) = data.split_once('=') else {
        return if entry(data).is_ok() && !Path::new(data).exists() {
            without_root(data, sets)
        } else {
            Ok(load_config(&[PathBuf::from(data)], &sets)?)
        };
    };
    entry(key).map_err(|why| Usage(format!("{data}: {why}")))?;
    if root.is_empty() {
        return Err(Usage(format!("{data}: names no folder behind `=`")).into());
    }
    let root = absolute(root).map_err(|why| Usage(format!("{data}: {why}")))?;
    sets.insert(0, format!("data.{key}.root={}", toml::Value::from(root.to_string_lossy().into_owned())));
    Ok(load_config(&[], &sets)?)
}

/// Reads the config for a data set that has no folder.
///
/// # Errors
/// Fails as bad usage if it needs one.
fn without_root(key: &str, mut sets: Vec<String>) -> Result<Tree> {
    sets.insert(0, format!("data.{key}={{}}"));
    if sets.len() == 1 && DataSpec::alone(load_config(&[], &sets)?).is_err() {
        return Err(Usage(format!("{key}: the data set needs its folder: write {key}=ROOT")).into());
    }
    Ok(load_config(&[], &sets)?)
}

/// Returns the key of an override.
fn key(set: &str) -> &str {
    set.split('=').next().unwrap_or_default().trim()
}

/// Returns whether a key of a table that holds one entry, such as `[head.*]`, is one of the entry that a config has.
fn is_of_own(key: &str, config: &Tree) -> bool {
    let mut parts = key.split('.');
    let (table, entry) = (parts.next().unwrap_or_default(), parts.next());
    table == "checkpoint" || config.chosen(table) == entry
}

fn is_of_data(set: &str) -> bool {
    key(set).starts_with("data.")
}

/// Merges config files and overrides `KEY=VALUE` as [`load_config`] does, and leaves out the keys `unsets`, as if no file had them.
///
/// # Errors
/// Fails as [`load_config`] does, and with every key that the config does not have, or of which the last part is not enough.
pub fn load_without(files: &[PathBuf], sets: &[String], unsets: &[String]) -> Result<Tree, Problems> {
    let mut tree = load_config(files, sets)?;
    unset(&mut tree, unsets)?;
    Ok(tree)
}

/// Removes keys.
fn unset(tree: &mut Tree, keys: &[String]) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for (order, key) in keys.iter().enumerate() {
        let origin = Origin::Set { order, option: "--unset" };
        match full_key(tree, key) {
            Err(why) => problems.push(origin, why),
            Ok(full) => {
                let full = full.unwrap_or_else(|| key.clone());
                let path: Vec<&str> = full.split('.').collect();
                if !forget(&mut tree.root, &path) {
                    problems.push(origin, format!("`{key}`: the config does not have this key: leave it out"));
                }
            }
        }
    }
    problems.into_result(())
}

/// Removes the value at `path`, and returns whether there was one.
pub fn forget(node: &mut Node, path: &[&str]) -> bool {
    let Value::Table(table) = &mut node.value else { return false };
    match path {
        [] => false,
        [last] => table.remove(*last).is_some(),
        [first, rest @ ..] => table.get_mut(*first).is_some_and(|inner| forget(inner, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\nseed = 1\n[checkpoint]\npath = \"a.pt\"\nnormalize = \"clip\"\n[head.linear]\n";

    fn read(data: &str, sets: &[&str]) -> DataSpec {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("config.toml");
        std::fs::write(&config, format!("{TEXT}{data}")).unwrap();
        let overrides = Overrides { sets: sets.iter().map(|set| set.to_string()).collect(), ..Overrides::default() };
        overrides.read_run(config).unwrap().data
    }

    #[test]
    fn a_data_set_without_its_folder_says_what_to_write() {
        let table = |data: &str| data_table(data, vec![]).map_err(|why| why.to_string());
        assert!(DataSpec::alone(table("digits").unwrap()).is_ok());
        assert_eq!(table("cifar10").unwrap_err(), "cifar10: the data set needs its folder: write cifar10=ROOT");
        assert!(table("cifra10").unwrap_err().contains("cifra10: cannot be read"));
    }

    // A short key means the table of the test set that is asked for, not that of the files.
    #[test]
    fn short_keys_are_those_of_the_test_set() {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("config.toml");
        std::fs::write(&config, format!("{TEXT}[data.image-folder]\nroot = \"/a/photos\"\n")).unwrap();
        let sets = vec!["subset=3".to_string(), "precision=bf16".to_string()];
        let full = |data: Option<&str>| {
            let overrides = Overrides { data: data.map(str::to_string), sets: sets.clone(), ..Overrides::default() };
            overrides.in_full(std::slice::from_ref(&config)).unwrap()
        };
        assert_eq!(full(None).sets, ["data.image-folder.subset=3", "train.precision=bf16"]);
        let other = full(Some("cifar10=/b"));
        assert_eq!(other.sets, ["data.cifar10.subset=3", "train.precision=bf16"]);
        assert!(other.check_for_run().is_ok() && other.has("train.precision"));
        // A config without training has no [train].
        let of_data = Overrides { sets: other.sets[..1].to_vec(), ..other.clone() };
        let read = of_data.read(std::slice::from_ref(&config)).unwrap().data;
        assert_eq!(read.dataset.resolved()["subset"].as_integer(), Some(3));
        let root = Overrides { sets: vec!["root=/c".to_string()], ..Overrides::default() };
        assert_eq!(root.for_another_run(config).unwrap().sets, ["data.image-folder.root=/c"]);
    }

    #[test]
    fn keys_of_a_set_that_is_not_tested_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("config.toml");
        std::fs::write(&config, format!("{TEXT}[data.image-folder]\nroot = \"/a/photos\"\n")).unwrap();
        let read = |sets: &[&str]| {
            let overrides =
                Overrides { sets: sets.iter().map(|set| set.to_string()).collect(), ..Overrides::default() };
            overrides.read_run(config.clone()).map_err(|error| format!("{error:#}"))
        };
        let error = read(&["data.cifar100.subset=3"]).err().unwrap();
        assert!(error.contains("--set data.cifar100.subset=3") && error.contains("data.image-folder"), "{error}");
        assert!(read(&["data.cifar100.subset=3", "data.cifar100.root=/b"]).is_ok());
        assert!(read(&["data.cifar100={root=\"/b\"}"]).is_ok());
        assert!(read(&["data.digits.subset=10"]).is_ok(), "its images are embedded");
        let unknown = read(&["data.cifar1000.subset=3"]).err().unwrap();
        assert!(unknown.contains("cifar1000") && unknown.contains("did you mean"), "{unknown}");
    }

    #[test]
    fn a_changed_test_set_loses_its_name_and_nothing_else() {
        let own = "[data.image-folder]\nroot = \"/a/photos\"\nlabel = \"mine\"\n";
        let label = |data: &str, sets: &[&str]| read(data, sets).label;
        assert_eq!(label(own, &["data.image-folder.root=/b/others"]), "mine");
        assert_eq!(label(own, &["data.image-folder.subset=3"]), "photos");
        assert_eq!(label(own, &["data.image-folder.subset=3", "data.image-folder.label = \"yours\""]), "yours");
        assert_eq!(label(&own.replace("label = \"mine\"", ""), &["data.image-folder.root=/b/others"]), "others");
        let archives = "[data.webdataset]\nroot = \"/a/photos\"\nlabel = \"num\"\n";
        let changed = read(archives, &["data.webdataset.root=/b/others"]);
        assert_eq!(changed.dataset.resolved()["label"].as_str(), Some("num"), "where the set keeps labels");
        assert_eq!(changed.label, "others");
    }
}
