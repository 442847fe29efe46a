//! Built heads by the content they were built from, in the user's cache folder: `$BELLA_CACHE`, else
//! `$XDG_CACHE_HOME/bella`, else `~/.cache/bella`. Files are written atomically under a name that is their content's
//! hash, so processes may share them; without a folder there is no cache.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor_file::State;

/// Part of every name: another way of building heads gets another one.
const VERSION: u32 = 1;

/// `[C, d]` of a head that was written before; a damaged file is reported and built again.
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

/// Keeps a head; a folder that cannot be written to costs the next run some time, so it is a warning.
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
