//! The cache of built heads in the user's cache folder: `$BELLA_CACHE`, else `$XDG_CACHE_HOME/bella`, else
//! `~/.cache/bella`. Each file is written atomically and named by the hash of the content it was built from, so
//! processes may share the cache. Without such a folder there is no cache.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor_file::State;

/// The version in each file name. It changes whenever heads are built differently.
const VERSION: u32 = 1;

/// Reads a cached head `[C, d]`. A damaged file gives a warning and counts as missing.
pub fn read(key: &str, classes: usize) -> Option<Tensor> {
    let path = path(key)?;
    if !path.is_file() {
        return None;
    }
    match checked(&path, classes) {
        Ok(weight) => Some(weight),
        Err(error) => {
            tracing::warn!("{}: built again, for the cached head is damaged ({error:#})", path.display());
            None
        }
    }
}

fn checked(path: &std::path::Path, classes: usize) -> Result<Tensor> {
    let state = State::read(path)?;
    let weight = state.get("weight")?;
    let rows = weight.size2().map(|(rows, _)| rows);
    ensure!(weight.kind() == Kind::Float && rows.is_ok_and(|rows| rows == classes as i64), "its weight is another one");
    ensure!(weight.isfinite().all().int64_value(&[]) == 1, "its weight is not finite");
    Ok(weight.copy())
}

/// Stores a head. If the folder cannot be written to, this only warns, since it only costs the next run some time.
pub fn write(key: &str, weight: &Tensor) {
    let Some(path) = path(key) else { return };
    let mut state = State::default();
    state.put("weight", weight);
    let folder = path.parent().map_or_else(PathBuf::new, |parent| parent.to_path_buf());
    let written = std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))
        .and_then(|()| state.write(&path));
    if let Err(error) = written {
        tracing::warn!(
            "the zero-shot head is not cached: {error:#}; set BELLA_CACHE to a folder that can be written to"
        );
    }
}

fn path(key: &str) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("BELLA_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("bella")))
        .or_else(|| variable("HOME").map(|folder| folder.join(".cache/bella")))?;
    Some(folder.join("heads").join(format!("v{VERSION}-{key}.safetensors")))
}
