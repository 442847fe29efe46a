//! The identity of a run: a hash of the settings that change its numbers, and of the content of the files they name.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::Experiment;
use crate::base::hash::{file_sha256, hex};

/// The keys that do not change a reported number: the locations of files, how the work is split, and
/// who is told of it.
const IRRELEVANT: [&[&str]; 16] = [
    &["name"],
    &["checkpoint", "path"],
    &["checkpoint", "tokenizer"],
    &["head", "*", "weights"],
    &["head", "*", "class_names_file"],
    &["data", "*", "root"],
    &["data", "*", "cache"],
    &["train", "particle_chunk"],
    &["train", "recompute"],
    &["train", "prefix_cache"],
    &["train", "eval_batch_size"],
    &["train", "save_minutes"],
    &["train", "log"],
    &["train", "on_epoch"],
    &["train", "on_epoch_seconds"],
    // The name of the key in earlier versions.
    &["train", "checkpoint_minutes"],
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
    for path in IRRELEVANT {
        remove(&mut settings, path);
    }
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

/// Returns the hash at the end of a run's id; `None` for a folder that has been renamed.
pub fn digest_in(id: &str) -> Option<&str> {
    let (rest, digest) = id.rsplit_once('-')?;
    let (_, seed) = rest.rsplit_once("-s")?;
    let is_hash = digest.len() == DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && seed.parse::<u64>().is_ok()).then_some(digest)
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
