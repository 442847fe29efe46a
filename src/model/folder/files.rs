//! The names of configs in a folder, and a value that several readers need.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::base::files::is_there;

/// The file names of configs, in the order of the search.
pub const FILES: [&str; 2] = ["config.json", "open_clip_config.json"];

/// Returns the config of a folder, if it has one.
pub fn file(folder: &Path) -> Option<PathBuf> {
    FILES.iter().map(|name| folder.join(name)).find(|path| is_there(path))
}

/// Returns the height in timm's `input_size = [3, height, width]`, in pixels.
pub fn input_size(config: &Value) -> Option<i64> {
    config.get("input_size")?.get(1)?.as_i64()
}
