//! The weights of a folder: one safetensors file, or several with an index.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::first_line;

/// The names of single weight files, in the order of the search.
const SINGLE: [&str; 3] = ["model.safetensors", "open_clip_model.safetensors", "open_clip_pytorch_model.safetensors"];
const INDEX: &str = "model.safetensors.index.json";

/// Files of pickled tensors, which are not read.
const PICKLED: [&str; 4] = ["pytorch_model.bin", "pytorch_model.pth", "model.pth", "open_clip_pytorch_model.bin"];

/// Returns the files with the folder's weights.
///
/// # Errors
/// Fails if there is no such file, if a shard is missing, or if the index is damaged.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let shown = folder.display();
    if let Some(single) = SINGLE.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
        return Ok(vec![single]);
    }
    let index = folder.join(INDEX);
    if !index.is_file() {
        let advice = match PICKLED.iter().find(|name| folder.join(name).is_file()) {
            Some(name) => format!(
                "{name} is a pickle, which bella does not open: save the model once more in Python with \
                 model.save_pretrained(\"{shown}\", safe_serialization=True)"
            ),
            None => "put the publisher's model.safetensors there".to_string(),
        };
        bail!("{shown}: has no {} and no {INDEX}; {advice}", SINGLE[0]);
    }
    let text = std::fs::read_to_string(&index).with_context(|| format!("{}: cannot read", index.display()))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{}: no JSON", index.display()))?;
    let map = json.get("weight_map").and_then(serde_json::Value::as_object);
    let map = map.with_context(|| format!("{}: has no `weight_map`", index.display()))?;
    let names: BTreeSet<&str> = map.values().filter_map(serde_json::Value::as_str).collect();
    ensure!(!names.is_empty(), "{}: its `weight_map` names no file", index.display());
    let missing: Vec<&str> = names.iter().copied().filter(|name| !folder.join(name).is_file()).collect();
    ensure!(missing.is_empty(), "{shown}: {INDEX} names {}, which is missing: download it, too", missing.join(", "));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Returns all tensors of a folder, on the CPU in their stored type.
///
/// # Errors
/// Fails as [`files`] does, if a file is damaged, or if a tensor has a number type other than plain floating point.
pub fn read(folder: &Path) -> Result<Vec<(String, Tensor)>> {
    let mut all = Vec::new();
    for path in files(folder)? {
        let tensors = of_file(&path)?;
        let floating = [Kind::Float, Kind::Half, Kind::BFloat16, Kind::Double];
        // Older versions store position indices as integers, which images never go through.
        let other = tensors.iter().find(|(name, t)| !floating.contains(&t.kind()) && !name.ends_with("position_ids"));
        if let Some((name, tensor)) = other {
            bail!(
                "{}: `{name}` is stored as {:?}: weights must be f32, f16, bf16 or f64, not quantised",
                path.display(),
                tensor.kind()
            );
        }
        all.extend(tensors);
    }
    Ok(all)
}

/// Returns all tensors of one file.
///
/// # Errors
/// Fails if the file is damaged.
pub fn of_file(path: &Path) -> Result<Vec<(String, Tensor)>> {
    Tensor::read_safetensors(path)
        .map_err(|e| anyhow!("{}: not a readable safetensors file: {}", path.display(), first_line(&e)))
}
