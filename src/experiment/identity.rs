//! The identity of a run: a hash of the settings that change its numbers, and of the content of the files they name.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::Experiment;
use super::places::PLACES;
use crate::base::hash::{file_sha256, hex};
use crate::hub::commit_in;

/// The keys that do not change a reported number, beside the places of files: how the work is split, and who is told of it.
const IRRELEVANT: [&[&str]; 9] = [
    &["name"],
    &["train", "particle_chunk"],
    &["train", "recompute"],
    &["train", "prefix_cache"],
    &["train", "eval_batch_size"],
    &["train", "save_minutes"],
    &["train", "log"],
    &["train", "on_epoch"],
    &["train", "on_epoch_seconds"],
];

/// Hexadecimal digits of the hash in a run's id.
const DIGITS: usize = 10;

impl Experiment {
    /// Returns `<method>-s<seed>-<hash>`, by which the same experiment finds its run again.
    ///
    /// # Errors
    /// Fails if a checkpoint or head file cannot be read.
    pub fn run_id(&self) -> Result<String> {
        let digest = digest_of(self.resolved(), self.file_hashes()?)?;
        let method = match &self.training {
            Some(training) => format!("{}-{}", training.subspace.key, training.method.key),
            None => "checkpoint".to_string(),
        };
        Ok(format!("{method}-s{}-{digest}", self.seed))
    }

    /// Returns the resolved settings without those that do not change a reported number.
    pub fn relevant(&self) -> toml::Table {
        let mut settings = self.resolved();
        leave_out_irrelevant(&mut settings);
        settings
    }

    /// Returns the SHA-256 of the checkpoint and of the head's files, concatenated. The files are read once.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn file_hashes(&self) -> Result<&str> {
        if let Some(known) = self.file_hashes.get() {
            return Ok(known);
        }
        let mut all = self.checkpoint.sha256()?.to_string();
        for file in self.head.spec.files() {
            all += &file_sha256(&file, &format!("head.{}", self.head.key))?;
        }
        Ok(self.file_hashes.get_or_init(|| all))
    }
}

/// Returns the end of a run's id: ten hexadecimal digits that depend on the resolved settings and on the hashes of the
/// files that they name.
///
/// # Errors
/// Fails if the settings cannot be written as TOML.
pub fn digest_of(mut settings: toml::Table, file_hashes: &str) -> Result<String> {
    leave_out_irrelevant(&mut settings);
    // How a batch is cut does not matter to a method that sees it in one part.
    if let Some(toml::Value::Table(train)) = settings.get_mut("train")
        && train.get("accumulate").and_then(toml::Value::as_str) == Some("auto")
    {
        train.insert("accumulate".into(), 1.into());
    }
    let mut hash = Sha256::new();
    hash.update(toml::to_string(&settings).context("cannot write the settings")?);
    hash.update(file_hashes);
    Ok(hex(&hash.finalize()[..DIGITS / 2]))
}

/// The settings of a run without its seed. Runs that are seeds of each other have equal ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The hash of the resolved settings without the seed, and of the files that they name.
    pub config: String,
    /// The settings by the names of their columns in results files: `svgd.gamma`, `train.epochs`, `data.cifar10.validation`.
    pub settings: Vec<(String, String)>,
}

impl Group {
    /// Returns the group of a run from its resolved settings and the hashes of the files that they name. A checkpoint
    /// without training does not depend on the data set of its config.
    ///
    /// # Errors
    /// Fails if the settings cannot be written as TOML.
    pub fn of(mut settings: toml::Table, file_hashes: &str) -> Result<Group> {
        settings.remove("seed");
        if !settings.contains_key("method") {
            settings.remove("data");
        }
        let config = digest_of(settings.clone(), file_hashes)?;
        leave_out_irrelevant(&mut settings);
        let mut columns = vec![];
        for (table, value) in &settings {
            let toml::Value::Table(inner) = value else { continue };
            match table.as_str() {
                "checkpoint" | "train" => flatten(table, inner, &mut columns),
                _ => inner.iter().for_each(|(choice, keys)| of_choice(table, choice, keys, &mut columns)),
            }
        }
        Ok(Group { config, settings: columns })
    }
}

/// Adds the columns of a chosen table, such as `[method.svgd]`. The choices of `[head.*]` and `[data.*]` have a column, and
/// rank and particles have columns of their own.
fn of_choice(table: &str, choice: &str, keys: &toml::Value, columns: &mut Vec<(String, String)>) {
    let toml::Value::Table(keys) = keys else { return };
    if ["head", "data"].contains(&table) {
        columns.push((table.to_string(), choice.to_string()));
    }
    let mut keys = keys.clone();
    if let Some(own) = [("subspace", "rank"), ("method", "particles")].iter().find(|(of, _)| *of == table) {
        keys.remove(own.1);
    }
    flatten(column_of(&format!("{table}.{choice}")), &keys, columns);
}

/// Returns the column of results files for a key of a config: `svgd.gamma` for `method.svgd.gamma`, but `train.epochs` and
/// `data.cifar10.validation` in full.
pub fn column_of(path: &str) -> &str {
    match path.split_once('.') {
        Some(("subspace" | "method" | "optimizer", rest)) => rest,
        _ => path,
    }
}

fn flatten(prefix: &str, table: &toml::Table, columns: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let column = format!("{prefix}.{key}");
        match value {
            toml::Value::Table(inner) => flatten(&column, inner, columns),
            toml::Value::String(text) => columns.push((column, text.clone())),
            other => columns.push((column, other.to_string())),
        }
    }
}

/// Returns the hash at the end of a run's id; `None` for a folder that has been renamed.
pub fn digest_in(id: &str) -> Option<&str> {
    let (rest, digest) = id.rsplit_once('-')?;
    let (_, seed) = rest.rsplit_once("-s")?;
    let is_hash = digest.len() == DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && seed.parse::<u64>().is_ok()).then_some(digest)
}

/// Removes the keys that do not change a reported number. Of the name of a checkpoint or a data set its commit stays, as
/// `checkpoint.commit` or `data.<key>.commit`: another commit has other weights or images.
fn leave_out_irrelevant(settings: &mut toml::Table) {
    let commit = |table: &toml::Value, key: &str| commit_in(table.get(key)?.as_str()?);
    let checkpoint = settings.get("checkpoint").and_then(|table| commit(table, "path"));
    let sets = settings.get("data").and_then(toml::Value::as_table).into_iter().flatten();
    let data: Vec<(String, String)> =
        sets.filter_map(|(key, table)| Some((key.clone(), commit(table, "root")?))).collect();
    PLACES.iter().for_each(|key| remove(settings, &key.split('.').collect::<Vec<_>>()));
    IRRELEVANT.iter().for_each(|path| remove(settings, path));
    if let (Some(commit), Some(toml::Value::Table(checkpoint))) = (checkpoint, settings.get_mut("checkpoint")) {
        checkpoint.insert("commit".into(), commit.into());
    }
    for (key, commit) in data {
        if let Some(toml::Value::Table(set)) = settings.get_mut("data").and_then(|sets| sets.get_mut(&key)) {
            set.insert("commit".into(), commit.into());
        }
    }
}

/// Removes the entry at `path`, where `*` stands for every key.
fn remove(table: &mut toml::Table, path: &[&str]) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        table.remove(*first);
        return;
    }
    for (key, value) in table.iter_mut() {
        if (*first == "*" || key == first)
            && let toml::Value::Table(inner) = value
        {
            remove(inner, rest);
        }
    }
}
