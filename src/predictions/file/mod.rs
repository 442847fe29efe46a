//! The predictions file: safetensors with `logits` F32 `[m, N, C]` and optionally `labels` and `groups` U32 `[N]`,
//! `weights` F64 `[m]`, those of the members in averages, and `score NAME` F64 `[N]`, scores that do not follow from logits. In files of other programs, logits may have any floating type and ids any integer type. Lists of names are JSON arrays
//! in the header's metadata. Files are read through a memory map and written without a copy.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::read::bytes_of;
use super::{CLASS_NAMES, GROUP_NAMES, Predictions, SampleScores, Shape, Storage, Values, check_weights, read};
use crate::base::checksummed::{self, Part};
use crate::base::mapped::Mapped;
use crate::base::tensor_file;

#[cfg(target_endian = "big")]
compile_error!("safetensors files are little-endian and are read in place");

impl Predictions {
    /// Opens a saved file as a memory map. Logits are not read until they are used, and `Scores::compute` checks them
    /// for NaN then. The file must not be changed in place while it is open; [`Predictions::save`] never does that.
    ///
    /// # Errors
    /// Fails if the file is not safetensors or is truncated, a tensor is missing or has another type or shape, or a
    /// label or group is out of range.
    pub fn open(path: &Path) -> Result<Self> {
        map(path).with_context(|| format!("predictions file {}", path.display()))
    }

    /// Returns an entry of the metadata of a file, whose content is neither read nor checked.
    ///
    /// # Errors
    /// Fails if the file is not safetensors or is truncated.
    pub fn described(path: &Path, key: &str) -> Result<Option<String>> {
        let found = || -> Result<Option<String>> {
            let map = Mapped::new(&crate::base::files::open_file(path)?, path)?;
            tensor_file::described(&map, key).context(NO_PREDICTIONS)
        };
        found().with_context(|| format!("predictions file {}", path.display()))
    }

    /// Writes the predictions to `path` atomically. Equal predictions give equal bytes.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.save_with(self.scores(), path)
    }

    /// Writes the predictions as [`save`](Self::save) does, with the scores by other names that the file has of the same logits.
    pub fn save_beside_scores(&self, path: &Path) -> Result<()> {
        let of_same = |old: &Predictions| old.all_logits() == self.all_logits() && old.weights() == self.weights();
        let mut scores = Predictions::open(path).ok().filter(of_same).map(|old| old.scores).unwrap_or_default();
        scores.extend(self.scores().clone());
        self.save_with(&scores, path)
    }

    fn save_with(&self, scores: &SampleScores, path: &Path) -> Result<()> {
        let Shape { members, samples, classes } = self.shape;
        let bytes = bytes_of(self.all_logits());
        let names: Vec<String> = scores.keys().map(|name| format!("{SCORE}{name}")).collect();
        let part = |name, dtype, shape, bytes: &[u8]| Part { name, dtype, shape, bytes: bytes.len() };
        let (mut parts, mut contents) =
            (vec![part("logits", "F32", vec![members, samples, classes], bytes)], vec![bytes]);
        for (name, ids) in [("labels", self.labels()), ("groups", self.groups())] {
            if let Some(bytes) = ids.map(bytes_of) {
                parts.push(part(name, "U32", vec![samples], bytes));
                contents.push(bytes);
            }
        }
        if let Some(bytes) = self.weights().map(bytes_of) {
            parts.push(part("weights", "F64", vec![members], bytes));
            contents.push(bytes);
        }
        for (name, bytes) in names.iter().zip(scores.values().map(|scores| bytes_of(scores))) {
            parts.push(part(name, "F64", vec![samples], bytes));
            contents.push(bytes);
        }
        checksummed::write(path, &header_metadata(self)?, &parts, |part, file| Ok(file.write_all(contents[part])?))
    }
}

/// The start of the names of tensors with scores.
const SCORE: &str = "score ";

const NO_PREDICTIONS: &str = "is not a safetensors file, or is truncated; evaluate again to write it anew";

fn map(path: &Path) -> Result<Predictions> {
    let file = crate::base::files::open_file(path)?;
    let map = Mapped::new(&file, path)?;
    let tensors = SafeTensors::deserialize(&map).context(NO_PREDICTIONS)?;
    let (_, header) = SafeTensors::read_metadata(&map).context(NO_PREDICTIONS)?;
    checksummed::check(&file).context("evaluate again to write it anew")?;
    let Ok(logits) = tensors.tensor("logits") else {
        ensure!(tensors.tensor("means").is_err(), "holds predicted numbers, and this is for predictions of classes");
        bail!("has no tensor `logits`; a predictions file holds `logits` and, for a labelled set, `labels`")
    };
    let &[members, samples, classes] = logits.shape() else {
        bail!("tensor `logits` has shape {:?}; it must be [members, samples, classes]", logits.shape())
    };
    let shape = Shape { members, samples, classes };
    shape.logit_count()?;
    let logits = match in_place(&map, &logits, Dtype::F32) {
        Some(range) => Values::Mapped(range),
        None => Values::Owned(read::floats("logits", &logits)?),
    };
    let labels = ids(&map, &tensors, "labels", samples)?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let mut metadata: BTreeMap<_, _> = metadata.into_iter().collect();
    checksummed::check_present(&metadata).with_context(|| path.display().to_string())?;
    metadata.remove(checksummed::KEY);
    let class_names = take_names(&mut metadata, CLASS_NAMES)?;
    let group_names = take_names(&mut metadata, GROUP_NAMES)?;
    let named = class_names.len();
    ensure!(named == 0 || named == classes, "{named} class names for {classes} classes");
    let groups = ids(&map, &tensors, "groups", samples)?;
    let (weights, scores) = (weights(&tensors, members)?, scores(&tensors)?);
    drop(tensors);
    let storage = Storage { map: Some(map), logits, labels, groups, weights };
    let mut predictions = Predictions { shape, storage, class_names, group_names, metadata, scores };
    predictions.labels().map_or(Ok(()), |labels| shape.check_labels(labels))?;
    if let (true, Some(groups)) = (predictions.group_names.is_empty(), predictions.groups()) {
        predictions.group_names = numbers_as_names(groups)?;
    }
    predictions.groups().map_or(Ok(()), |groups| shape.check_groups(groups, &predictions.group_names))?;
    predictions.weights().map_or(Ok(()), |weights| check_weights(weights, members))?;
    predictions.scores().iter().try_for_each(|(name, scores)| shape.check_scores(name, scores))?;
    Ok(predictions)
}

/// The most groups whose numbers are their names.
const NUMBERED_GROUPS: u32 = 1 << 16;

/// Returns the byte range of a tensor in the file. `None` if its values cannot be read in place because they have
/// another type or are not aligned.
fn in_place(map: &Mapped, tensor: &TensorView, dtype: Dtype) -> Option<Range<usize>> {
    let start = tensor.data().as_ptr() as usize - map.as_ptr() as usize;
    // The map starts at a page boundary, but another program may have written the header without padding.
    let fits = tensor.dtype() == dtype && start.is_multiple_of(4);
    fits.then(|| start..start + tensor.data().len())
}

/// Returns the weights of the members, `[m]`, if the file has them.
fn weights(tensors: &SafeTensors<'_>, members: usize) -> Result<Option<Vec<f64>>> {
    let Ok(tensor) = tensors.tensor("weights") else { return Ok(None) };
    let shape = tensor.shape();
    ensure!(shape == [members], "tensor `weights` has shape {shape:?}; it must be [{members}], one for each member");
    read::doubles("weights", &tensor).map(Some)
}

/// Returns the scores of samples by their names.
fn scores(tensors: &SafeTensors<'_>) -> Result<SampleScores> {
    let named = tensors.names().into_iter().filter_map(|name| Some((name, name.strip_prefix(SCORE)?)));
    named.map(|(tensor, name)| Ok((name.to_string(), read::doubles(tensor, &tensors.tensor(tensor)?)?))).collect()
}

/// Returns the ids of an optional tensor, `[N]`.
fn ids(map: &Mapped, tensors: &SafeTensors<'_>, name: &str, samples: usize) -> Result<Option<Values<u32>>> {
    if !tensors.names().contains(&name) {
        return Ok(None);
    }
    let tensor = tensors.tensor(name)?;
    let shape = tensor.shape();
    ensure!(shape == [samples], "tensor `{name}` has shape {shape:?}; it must be [{samples}], as `logits` has");
    Ok(Some(match in_place(map, &tensor, Dtype::U32) {
        Some(range) => Values::Mapped(range),
        None => Values::Owned(read::ids(name, &tensor)?),
    }))
}

/// Returns the numbers of groups as their names, as classes without names have them.
fn numbers_as_names(groups: &[u32]) -> Result<Vec<String>> {
    let highest = groups.iter().copied().max().unwrap_or_default();
    ensure!(
        highest < NUMBERED_GROUPS,
        "tensor `groups` has the group {highest} and no metadata `{GROUP_NAMES}`: without names, groups are numbered below {NUMBERED_GROUPS}"
    );
    Ok((0..=highest).map(|group| group.to_string()).collect())
}

fn take_names(metadata: &mut BTreeMap<String, String>, key: &str) -> Result<Vec<String>> {
    match metadata.remove(key) {
        None => Ok(vec![]),
        Some(text) => {
            serde_json::from_str(&text).with_context(|| format!("metadata `{key}` is no JSON array of strings"))
        }
    }
}

/// Returns the metadata and the lists of names in the order of their keys. Lists are stored as JSON arrays.
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
