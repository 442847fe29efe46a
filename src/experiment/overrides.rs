//! The settings of a config that a command changes: another test set, or keys that change no number of the training.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::layers::full_key;
use super::{Experiment, load_config};
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
}

impl Overrides {
    /// Returns the overrides that locate the run's own data.
    pub fn roots(&self) -> Vec<String> {
        let is_root = |set: &&String| set.split('=').next().is_some_and(|key| key.trim_end().ends_with(".root"));
        if self.data.is_some() { Vec::new() } else { self.sets.iter().filter(is_root).cloned().collect() }
    }

    /// Returns whether the overrides keep the run's own data, apart from its location.
    pub fn keep_data(&self) -> bool {
        let key = |set: &str| set.split('=').next().unwrap_or_default().trim_end().to_string();
        let moves = |key: &str| [".root", ".cache"].iter().any(|end| key.ends_with(end));
        self.data.is_none() && self.sets.iter().all(|set| !key(set).starts_with("data.") || moves(&key(set)))
    }

    /// Returns the overrides that also apply to another run: the location of the data, and the number type.
    pub fn for_another_run(&self) -> Overrides {
        Overrides { data: None, sets: self.roots(), precision: self.precision }
    }

    /// Checks that the overrides change nothing that a run was trained with.
    ///
    /// # Errors
    /// Fails with the first one that does.
    pub fn check_for_run(&self) -> Result<()> {
        let of_no_number = ["data.", "checkpoint.path=", "train.particle_chunk", "train.precision"];
        let other = self.sets.iter().find(|set| !of_no_number.iter().any(|start| set.starts_with(start)));
        if let Some(set) = other {
            let why = format!(
                "--set {set}: a run's settings are what it was trained with; only data.*, checkpoint.path, \
                 train.particle_chunk and train.precision can be set"
            );
            return Err(Usage(why).into());
        }
        Ok(())
    }

    /// Reads the experiment of a run's config with the overrides.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or with every mistake in the result.
    pub fn read_run(&self, config: PathBuf) -> Result<Experiment> {
        let files = [config];
        if self.data.is_some() {
            return self.read(&files);
        }
        let mut tree = load_config(&files, &self.sets)?;
        let changed = self.sets.iter().any(|set| set.starts_with("data."));
        if changed && !self.sets.iter().any(|set| set.contains(".label=")) {
            forget_label(&mut tree.root);
        }
        Ok(Experiment::read_to_evaluate(&tree)?)
    }

    /// Reads the experiment of config files with the overrides.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or with every mistake in the result.
    pub fn read(&self, files: &[PathBuf]) -> Result<Experiment> {
        let Some(data) = &self.data else {
            return Ok(Experiment::read_to_evaluate(&load_config(files, &self.sets)?)?);
        };
        let (of_data, others): (Vec<String>, Vec<String>) =
            self.sets.iter().cloned().partition(|set| set.starts_with("data."));
        let mut tree = load_config(files, &others)?;
        replace_data(&mut tree, data, of_data)?;
        Ok(Experiment::read_to_evaluate(&tree)?)
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

/// Reads the config for `KEY=ROOT` or a file, with the overrides of `data.*`.
///
/// # Errors
/// Fails if the data set is unknown, or with every mistake in the file.
pub fn data_table(data: &str, mut sets: Vec<String>) -> Result<Tree> {
    let Some((key, root)) = data.split_once('=') else {
        return Ok(load_config(&[PathBuf::from(data)], &sets)?);
    };
    entry(key).map_err(|why| Usage(format!("{data}: {why}")))?;
    if root.is_empty() {
        return Err(Usage(format!("{data}: names no folder behind `=`")).into());
    }
    let root = absolute(root).map_err(|why| Usage(format!("{data}: {why}")))?;
    sets.insert(0, format!("data.{key}.root={}", toml::Value::from(root.to_string_lossy().into_owned())));
    Ok(load_config(&[], &sets)?)
}

/// Removes the stored name of a test set that has been changed, so that its results get their own row.
fn forget_label(root: &mut Node) {
    let Value::Table(all) = &mut root.value else { return };
    if let Some(Value::Table(sets)) = all.get_mut("data").map(|node| &mut node.value) {
        for set in sets.values_mut() {
            forget(set, &["label"]);
        }
    }
}

/// Removes keys, as if no file had them.
///
/// # Errors
/// Fails with every key that the config does not have, or of which the last part is not enough.
pub fn unset(tree: &mut Tree, keys: &[String]) -> Result<(), Problems> {
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
