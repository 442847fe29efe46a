//! The files of a folder: the names of configs, and the network's weights, in one file of safetensors or of tensors in a pickle, or in
//! several with an index.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use safetensors::tensor::Metadata;
use serde::Deserialize;
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::base::files::{is_there, open_file, read_json};
use crate::base::tensor::safetensors_line;
use crate::hub::{ADAPTER, CONFIG, INDEX, OPEN_CLIP, lead};
use crate::model::archive::stored;
use crate::model::folder::unread::{Unread, listed};
use crate::model::values::Values;

/// The file with what a network's own package computes, which a user may put beside the weights.
pub const REFERENCE: &str = "reference.safetensors";

/// The name of most weights.
const PLAIN: &str = "model.safetensors";
const SAFETENSORS: &str = "safetensors";

/// The largest header of a safetensors file, as its format has it.
const MAX_HEADER: u64 = 100_000_000;

/// A network's weights on disk.
pub struct Place {
    /// The path that the user gave.
    pub path: PathBuf,
    /// The folder in which a config may lie beside the weights.
    pub folder: PathBuf,
    files: Vec<PathBuf>,
    /// The file of each tensor, where an index says it.
    index: Option<(PathBuf, BTreeMap<String, String>)>,
}

/// Returns whether a path is a folder or a file of tensors, rather than an archive with a forward pass of its own.
///
/// # Errors
/// Fails if the file is one that torch wrote before version 1.6.
pub fn has_weights(path: &Path) -> Result<bool> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let by_name = name.ends_with(INDEX) || path.extension().is_some_and(|end| end == SAFETENSORS);
    Ok(path.is_dir() || (path.is_file() && (by_name || stored::is_state_dict(path)?)))
}

/// Says what to do about a folder without weights of a known name.
fn instead(folder: &Path) -> String {
    if folder.join(ADAPTER).is_file() {
        return "it is a PEFT adapter, which `bella import` reads".into();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let endings = [SAFETENSORS, "bin", "pth", "pt"];
    let fits = |path: &PathBuf| {
        !path.ends_with(REFERENCE) && path.extension().is_some_and(|end| endings.iter().any(|known| end == *known))
    };
    match entries.filter(fits).min() {
        Some(file) => format!("if {} is what you mean, set checkpoint.path to it", file.display()),
        None => format!("put the publisher's {PLAIN} there"),
    }
}

/// Returns the folder in which a config or a tokenizer may lie: the checkpoint itself, or the one that holds its file.
pub fn home(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() { path.to_path_buf() } else { parent.to_path_buf() }
}

impl Place {
    /// Finds the weights of a folder, of an index, or of a single file.
    ///
    /// # Errors
    /// Fails if there are none, if a shard is missing, or if the index is damaged.
    pub fn of(path: &Path) -> Result<Place> {
        if !path.is_dir() {
            return Place::of_file(path, &home(path), path);
        }
        let has = |name: &str| is_there(&path.join(name));
        let Some(file) = lead(has) else {
            bail!("{}: has no {PLAIN} and no {PLAIN}{INDEX}; {}", path.display(), instead(path))
        };
        ensure!(
            !has(ADAPTER),
            "{}: {ADAPTER} lies beside the weights of a whole network, to which transformers would apply that adapter: move it with \
             adapter_model.safetensors to a folder of its own, which `bella import` reads, or take it away",
            path.display()
        );
        Place::of_file(path, path, &path.join(file))
    }

    fn of_file(path: &Path, folder: &Path, file: &Path) -> Result<Place> {
        let (path, folder) = (path.to_path_buf(), folder.to_path_buf());
        if !file.to_string_lossy().ends_with(INDEX) {
            return Ok(Place { path, folder, files: vec![file.to_path_buf()], index: None });
        }
        let shown = file.display();
        let json = read_json(file)?;
        let map = json.get("weight_map").and_then(Value::as_object);
        let map = map.with_context(|| format!("{shown}: has no `weight_map`"))?;
        let file_of = |(tensor, file): (&String, &Value)| Some((tensor.clone(), file.as_str()?.to_string()));
        let map: BTreeMap<String, String> = map.iter().filter_map(file_of).collect();
        let names: BTreeSet<&str> = map.values().map(String::as_str).collect();
        ensure!(!names.is_empty(), "{shown}: its `weight_map` names no file");
        let elsewhere = names.iter().find(|name| Path::new(name).file_name().is_none_or(|plain| plain != **name));
        ensure!(elsewhere.is_none(), "{shown}: names {}, which is no file beside it", elsewhere.unwrap_or(&""));
        let missing: Vec<&str> = names.iter().copied().filter(|name| !folder.join(name).is_file()).collect();
        ensure!(missing.is_empty(), "{shown}: names {}, which is missing: download it, too", missing.join(", "));
        let files = names.iter().map(|name| folder.join(name)).collect();
        Ok(Place { path, folder, files, index: Some((file.to_path_buf(), map)) })
    }

    /// Returns the files that the weights lie in, with the index.
    pub fn files(&self) -> Vec<PathBuf> {
        self.index.iter().map(|(path, _)| path.clone()).chain(self.files.iter().cloned()).collect()
    }

    /// Returns all tensors, on the CPU in their stored type.
    ///
    /// # Errors
    /// Fails if a file is damaged, if it contradicts the index, or if a tensor has a number type other than plain floating
    /// point.
    pub fn read(&self) -> Result<Vec<(String, Tensor)>> {
        let mut all: Vec<(String, Tensor)> = Vec::new();
        for shard in self.shards() {
            all.extend(shard?);
        }
        Ok(all)
    }

    /// Returns all tensors in their stored type, those of safetensors files without reading them. `codes` says whether they may be
    /// integers, as those of quantised weights are.
    ///
    /// # Errors
    /// Fails as [`read`](Self::read) does.
    pub fn unread(&self, codes: bool) -> Result<Vec<(String, Unread)>> {
        let mut all = Vec::new();
        for path in &self.files {
            let own = unread_of_file(path, codes)?;
            check_index(self.index.as_ref(), path, own.iter().map(|(name, _)| name.as_str()))?;
            all.extend(own);
        }
        Ok(all)
    }

    /// Returns the tensors of every file, which are read when their turn comes.
    pub fn shards(&self) -> impl Iterator<Item = Result<Vec<(String, Tensor)>>> {
        self.files.iter().map(|path| {
            let tensors = of_file(path)?;
            check_index(self.index.as_ref(), path, tensors.iter().map(|(name, _)| name.as_str()))?;
            Ok(tensors)
        })
    }

    /// Returns the number of files that an index names; `None` for one file without an index.
    pub fn indexed(&self) -> Option<usize> {
        self.index.is_some().then_some(self.files.len())
    }
}

/// Checks that a shard has the tensors that the index promises, and no others.
fn check_index<'a>(
    index: Option<&(PathBuf, BTreeMap<String, String>)>,
    path: &Path,
    found: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let Some((index, map)) = index else { return Ok(()) };
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let there: BTreeSet<&str> = found.collect();
    let promised: BTreeSet<&str> =
        map.iter().filter(|(_, of)| of.as_str() == file).map(|(name, _)| name.as_str()).collect();
    let odd = promised.symmetric_difference(&there).next();
    let verb = if odd.is_some_and(|name| there.contains(name)) { "has" } else { "lacks" };
    ensure!(
        odd.is_none(),
        "{}: {verb} `{}`, against what {} says: download both anew",
        path.display(),
        odd.unwrap_or(&""),
        index.display()
    );
    Ok(())
}

/// Returns all tensors of a file of weights.
///
/// # Errors
/// Fails if the file is damaged, or if a tensor has a number type other than plain floating point.
fn of_file(path: &Path) -> Result<Vec<(String, Tensor)>> {
    if path.extension().is_some_and(|end| end == SAFETENSORS) {
        checked_header(path, false)?;
        return of_safetensors(path);
    }
    of_pickle(path, false)
}

/// Returns all tensors of a file of weights, those of a safetensors file without reading them.
fn unread_of_file(path: &Path, codes: bool) -> Result<Vec<(String, Unread)>> {
    if path.extension().is_some_and(|end| end == SAFETENSORS) {
        let (header, start) = checked_header(path, codes)?;
        return listed(path, &header, start).map_err(|why| damaged(path, &format!("{why:#}")));
    }
    Ok(of_pickle(path, codes)?.into_iter().map(|(name, tensor)| (name, Unread::of(tensor))).collect())
}

/// Returns the header of a safetensors file whose tensors are plain floating point, or codes where these are allowed, and the place of
/// the first byte behind it.
fn checked_header(path: &Path, codes: bool) -> Result<(Value, u64)> {
    let file = open_file(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    let (header, start) = header(file).map_err(|why| damaged(path, &format!("{why:#}")))?;
    for (name, tensor) in header.as_object().into_iter().flatten().filter(|(name, _)| *name != "__metadata__") {
        let kind = tensor.get("dtype").and_then(Value::as_str).unwrap_or_default();
        let plain = ["F32", "F16", "BF16", "F64"].contains(&kind) || codes && ["I8", "U8", "I32"].contains(&kind);
        let axes = tensor.get("shape").and_then(Value::as_array).map_or(0, Vec::len);
        ensure!(plain || is_no_weight(name, axes), "{}", quantised(path, name, kind));
    }
    let there = path.metadata().map_or(0, |file| file.len()).saturating_sub(start);
    check_layout(&header, there).map_err(|why| damaged(path, &format!("{why:#}")))?;
    Ok((header, start))
}

/// Checks that the tensors of a header fill the bytes behind it without gaps and overlaps.
fn check_layout(header: &Value, there: u64) -> Result<()> {
    let layout = Metadata::deserialize(header).map_err(|why| anyhow!("its header is wrong: {why}"))?;
    let needed = layout.data_len() as u64;
    ensure!(needed <= there, "it is cut off: its tensors have {needed} bytes, and {there} lie behind its header");
    ensure!(needed == there, "{} bytes lie behind its tensors, which belong to none", there - needed);
    Ok(())
}

fn of_pickle(path: &Path, codes: bool) -> Result<Vec<(String, Tensor)>> {
    let shown = path.display();
    let whole = stored::is_state_dict(path)?;
    ensure!(whole, "{shown}: is no file of tensors that torch wrote, or a truncated one: fetch it again");
    let tensors = stored::read(path)?;
    for (name, tensor) in &tensors {
        let plain = is_plain(tensor.kind()) || codes && [Kind::Int8, Kind::Uint8, Kind::Int].contains(&tensor.kind());
        ensure!(
            plain || is_no_weight(name, tensor.dim()),
            "{}",
            quantised(path, name, &format!("{:?}", tensor.kind()))
        );
    }
    Ok(tensors)
}

/// Returns all tensors of a safetensors file, of any type.
///
/// # Errors
/// Fails if the file is damaged.
pub fn of_safetensors(path: &Path) -> Result<Vec<(String, Tensor)>> {
    Tensor::read_safetensors(path).map_err(|why| damaged(path, &safetensors_line(&why)))
}

fn damaged(path: &Path, why: &str) -> Error {
    anyhow!("{}: not a readable safetensors file: {why}", path.display())
}

/// Returns the header of a safetensors file (the length of the JSON in eight bytes, then the JSON) and its length.
fn header(mut file: File) -> Result<(Value, u64)> {
    let mut length = [0; 8];
    file.read_exact(&mut length).context("it is cut off")?;
    let length = u64::from_le_bytes(length);
    ensure!(length <= MAX_HEADER.min(file.metadata()?.len().saturating_sub(8)), "its header is larger than the file");
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes).context("it is cut off")?;
    Ok((serde_json::from_slice(&bytes).context("its header is no JSON")?, 8 + length))
}

/// Returns whether weights that are not quantised may have a number type.
pub fn is_plain(kind: Kind) -> bool {
    [Kind::Float, Kind::Half, Kind::BFloat16, Kind::Double].contains(&kind)
}

/// Returns whether a tensor of so many axes is one of indices or counts, which are stored as integers, or GPT-2's causal mask `[1, 1, n, n]`,
/// which transformers before version 4.30 stored as truth values or bytes: no sample goes through them.
fn is_no_weight(name: &str, axes: usize) -> bool {
    ["position_ids", "relative_position_index", "num_batches_tracked"].iter().any(|end| name.ends_with(end))
        || (name.ends_with(".attn.bias") && axes == 4)
}

fn quantised(path: &Path, name: &str, kind: &str) -> String {
    format!(
        "{}: `{name}` is stored as {kind}: weights must be f32, f16, bf16 or f64, not quantised; give the publisher's \
         unquantised weights",
        path.display()
    )
}

/// The file names of configs: that of transformers and timm, and that of open_clip.
pub const FILES: [&str; 2] = [CONFIG, OPEN_CLIP];

/// Returns the file names of configs in the order of the search for the weights at a path, a folder or a file: where both lie there, those of
/// open_clip are described by its own config.
pub fn configs(path: &Path) -> [&'static str; 2] {
    let named = path.file_name().and_then(|name| name.to_str()).filter(|_| !path.is_dir());
    let weights = named.or_else(|| lead(|name| is_there(&path.join(name)))).unwrap_or_default();
    let [plain, of_open_clip] = FILES;
    if weights.starts_with("open_clip_") { [of_open_clip, plain] } else { FILES }
}

/// Returns the config beside the weights at a path, a folder or a file, if there is one.
pub fn file(path: &Path) -> Option<PathBuf> {
    configs(path).iter().map(|name| home(path).join(name)).find(|path| is_there(path))
}

/// Returns the values of the config beside the weights at a path, a folder or a file.
///
/// # Errors
/// Fails if there is none, or if it is not JSON.
pub fn values_of(path: &Path) -> Result<Values> {
    let file = file(path).context("there is no config.json beside the weights")?;
    Ok(Values::new(&file, read_json(&file)?))
}

/// Returns the model type that the config beside the weights at a path names.
pub fn model_type_of(path: &Path) -> Option<String> {
    values_of(path).ok()?.table().get("model_type")?.as_str().map(str::to_string)
}

/// Returns the height in timm's `input_size = [3, height, width]`, in pixels.
pub fn input_size(config: &Value) -> Option<i64> {
    config.get("input_size")?.get(1)?.as_i64()
}
