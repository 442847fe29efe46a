//! The predictions file: safetensors with `logits` F32 `[m, N, C]`, and optionally `labels` and
//! `groups` U32 `[N]`.
//! Name lists are JSON arrays in the header's metadata. Read through a memory map, written without a copy.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde::Serialize;

use super::bytes::{as_u32, bytes_of};
use super::{CLASS_NAMES, GROUP_NAMES, Predictions, Shape, Storage};
use crate::files::write_atomic;

#[cfg(target_endian = "big")]
compile_error!("safetensors files are little-endian and are read in place");

impl Predictions {
    /// Opens a saved file as a memory map; logits are not read before they are used.
    ///
    /// Errors: no safetensors file, truncated, a tensor missing or of another type or shape, a label
    /// or group out of range. Logits are checked for NaN where they are read, by `Scores::compute`.
    /// The file must not be changed in place while open; [`Predictions::save`] never does.
    pub fn open(path: &Path) -> Result<Self> {
        map(path).with_context(|| format!("predictions file {}", path.display()))
    }

    /// Writes `path` atomically. Equal predictions give equal bytes.
    pub fn save(&self, path: &Path) -> Result<()> {
        let Shape { members, samples, classes } = self.shape;
        let mut tensors = vec![("logits", "F32", vec![members, samples, classes], bytes_of(self.all_logits()))];
        for (name, ids) in [("labels", self.labels()), ("groups", self.groups())] {
            if let Some(ids) = ids {
                tensors.push((name, "U32", vec![samples], bytes_of(ids)));
            }
        }
        // Not through the safetensors crate: its metadata order is random, and it copies or does not sync.
        let metadata = serde_json::to_value(header_metadata(self)?)?;
        let mut entries = BTreeMap::from([("__metadata__", metadata)]);
        let mut start = 0;
        for (name, dtype, shape, bytes) in &tensors {
            let data_offsets = [start, start + bytes.len()];
            start = data_offsets[1];
            let entry = TensorEntry { dtype, shape, data_offsets };
            entries.insert(name, serde_json::to_value(entry)?);
        }
        let mut header = serde_json::to_string(&entries)?;
        // Spaces up to a multiple of 8 bytes, so that the mapped tensors are aligned.
        header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
        write_atomic(path, |writer| {
            writer.write_all(&(header.len() as u64).to_le_bytes())?;
            writer.write_all(header.as_bytes())?;
            tensors.iter().try_for_each(|(.., bytes)| Ok(writer.write_all(bytes)?))
        })
    }
}

#[derive(Serialize)]
struct TensorEntry<'a> {
    dtype: &'a str,
    shape: &'a [usize],
    data_offsets: [usize; 2],
}

fn map(path: &Path) -> Result<Predictions> {
    let file = File::open(path)?;
    ensure!(file.metadata()?.is_file(), "is not a regular file");
    // SAFETY: the map is read-only, and this program replaces such files by rename, never in place.
    let map = unsafe { Mmap::map(&file) }?;
    let hint = "is not a safetensors file, or is truncated; evaluate again to write it anew";
    let tensors = SafeTensors::deserialize(&map).context(hint)?;
    let (_, header) = SafeTensors::read_metadata(&map).context(hint)?;
    let (logits, dims) = locate(&map, &tensors, "logits", Dtype::F32)?;
    let &[members, samples, classes] = dims.as_slice() else {
        bail!("tensor `logits` has shape {dims:?}; it must be [members, samples, classes]")
    };
    let shape = Shape { members, samples, classes };
    shape.logit_count()?;
    let labels = locate_ids(&map, &tensors, "labels", samples)?;
    if let Some(range) = &labels {
        shape.check_labels(as_u32(&map[range.clone()]))?;
    }
    let metadata = header.metadata().clone().unwrap_or_default();
    let mut metadata: BTreeMap<_, _> = metadata.into_iter().collect();
    let class_names = take_names(&mut metadata, CLASS_NAMES)?;
    let group_names = take_names(&mut metadata, GROUP_NAMES)?;
    let named = class_names.len();
    ensure!(named == 0 || named == classes, "{named} class names for {classes} classes");
    let groups = locate_ids(&map, &tensors, "groups", samples)?;
    if let Some(range) = &groups {
        shape.check_groups(as_u32(&map[range.clone()]), &group_names)?;
    }
    let storage = Storage::Mapped { map, logits, labels, groups };
    Ok(Predictions { shape, storage, class_names, group_names, metadata })
}

/// Byte range of a tensor in the file, and its shape.
fn locate(map: &Mmap, tensors: &SafeTensors<'_>, name: &str, dtype: Dtype) -> Result<(Range<usize>, Vec<usize>)> {
    let Ok(tensor) = tensors.tensor(name) else {
        bail!("has no tensor `{name}`; a predictions file holds `logits` and, for a labelled set, `labels`")
    };
    let found = tensor.dtype();
    ensure!(found == dtype, "tensor `{name}` has type {found:?}; it must be {dtype:?}");
    let start = tensor.data().as_ptr() as usize - map.as_ptr() as usize;
    // The map starts on a page; a foreign writer may have left the header unpadded.
    ensure!(start.is_multiple_of(4), "tensor `{name}` starts at byte {start}; it must be a multiple of 4");
    Ok((start..start + tensor.data().len(), tensor.shape().to_vec()))
}

/// Byte range of an optional tensor of ids `[N]`.
fn locate_ids(map: &Mmap, tensors: &SafeTensors<'_>, name: &str, samples: usize) -> Result<Option<Range<usize>>> {
    if !tensors.names().contains(&name) {
        return Ok(None);
    }
    let (range, shape) = locate(map, tensors, name, Dtype::U32)?;
    ensure!(shape == [samples], "tensor `{name}` has shape {shape:?}; it must be [{samples}], as `logits` has");
    Ok(Some(range))
}

fn take_names(metadata: &mut BTreeMap<String, String>, key: &str) -> Result<Vec<String>> {
    match metadata.remove(key) {
        None => Ok(vec![]),
        Some(text) => {
            serde_json::from_str(&text).with_context(|| format!("metadata `{key}` is no JSON array of strings"))
        }
    }
}

/// Metadata and the name lists, the latter as JSON arrays, in key order.
fn header_metadata(predictions: &Predictions) -> Result<BTreeMap<&str, String>> {
    let metadata = predictions.metadata.iter();
    let mut entries: BTreeMap<_, _> = metadata.map(|(k, v)| (k.as_str(), v.clone())).collect();
    let lists = [(CLASS_NAMES, &predictions.class_names), (GROUP_NAMES, &predictions.group_names)];
    for (key, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        entries.insert(key, serde_json::to_string(names)?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
