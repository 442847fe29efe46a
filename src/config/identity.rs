//! What makes two runs the same: a hash of the settings that change numbers, and of the content of the files they name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::Experiment;

/// Keys that do not change a reported number: where things lie, and how the work is cut.
const IRRELEVANT: [&[&str]; 11] = [
    &["name"],
    &["checkpoint", "path"],
    &["head", "*", "weights"],
    &["head", "*", "class_names_file"],
    &["data", "*", "root"],
    &["data", "*", "cache"],
    &["train", "particle_chunk"],
    &["train", "recompute"],
    &["train", "prefix_cache"],
    &["train", "eval_batch_size"],
    &["train", "checkpoint_minutes"],
];

impl Experiment {
    /// `<method>-s<seed>-<hash>`: the same experiment finds its run again.
    ///
    /// # Errors
    /// A checkpoint or head file that cannot be read.
    pub fn run_id(&self) -> Result<String> {
        let mut hash = Sha256::new();
        let mut settings = self.resolved();
        for path in IRRELEVANT {
            remove(&mut settings, path);
        }
        // How a batch is cut does not matter to a method that sees it in one part.
        if let Some(toml::Value::Table(train)) = settings.get_mut("train")
            && train.get("accumulate").and_then(toml::Value::as_str) == Some("auto")
        {
            train.insert("accumulate".into(), 1.into());
        }
        hash.update(toml::to_string(&settings).context("cannot write the settings")?);
        hash.update(self.file_hashes()?);
        let digest = hex(&hash.finalize()[..5]);
        let method = match &self.training {
            Some(training) => format!("{}-{}", training.subspace.key, training.method.key),
            None => "checkpoint".to_string(),
        };
        Ok(format!("{method}-s{}-{digest}", self.seed))
    }

    /// SHA-256 of the checkpoint and of the head's files, one after the other; read once.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn file_hashes(&self) -> Result<&str> {
        if let Some(known) = self.file_hashes.get() {
            return Ok(known);
        }
        let mut all = self.checkpoint_hash()?.to_string();
        for file in self.head.spec.files() {
            all += &hex(&file_hash(&file, &format!("head.{}", self.head.key))?);
        }
        Ok(self.file_hashes.get_or_init(|| all))
    }

    /// SHA-256 of the checkpoint; read once.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn checkpoint_hash(&self) -> Result<&str> {
        if let Some(known) = self.checkpoint_hash.get() {
            return Ok(known);
        }
        let hash = hex(&file_hash(&self.checkpoint.path, "checkpoint.path")?);
        Ok(self.checkpoint_hash.get_or_init(|| hash))
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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

/// SHA-256 of a file's content.
fn file_hash(path: &Path, key: &str) -> Result<[u8; 32]> {
    ensure!(path.is_file(), "{}: no such file: {key} must name an existing one", path.display());
    let mut file = File::open(path).with_context(|| format!("{}: cannot open", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let count = file.read(&mut buffer).with_context(|| format!("{}: cannot read", path.display()))?;
        if count == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(&buffer[..count]);
    }
}
