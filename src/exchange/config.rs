//! The JSON files of folders.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::base::files::read_json;

/// Returns the config of a checkpoint's folder.
///
/// # Errors
/// Fails if it has none, or if that is not JSON.
pub fn read(folder: &Path) -> Result<Value> {
    let beside = if folder.is_dir() { folder } else { folder.parent().unwrap_or(folder) };
    let path = crate::model::folder::config_file(beside);
    of_file(&path.with_context(|| format!("{}: has no config beside it", folder.display()))?)
}

/// Returns the content of a JSON file.
///
/// # Errors
/// Fails if it cannot be read, or if it is not an object.
pub fn of_file(path: &Path) -> Result<Value> {
    let value = read_json(path)?;
    ensure!(value.is_object(), "{}: no JSON object", path.display());
    Ok(value)
}

/// Writes a JSON file with two spaces of indent.
///
/// # Errors
/// Fails if it cannot be written.
pub fn write(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
