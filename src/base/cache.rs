//! The user's cache folder: `$BELLA_CACHE`, else `$XDG_CACHE_HOME/bella`, else `~/.cache/bella`.

use std::path::PathBuf;

/// Returns the cache folder; `None` if the environment names none.
pub fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("BELLA_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("bella")))
        .or_else(|| variable("HOME").map(|folder| folder.join(".cache/bella")))
}
