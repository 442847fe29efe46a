//! The two layouts that CIFAR-10 and CIFAR-100 share. The binary version has records of label bytes and 3072
//! pixel bytes `[3, 32, 32]`. The Python version is a pickled dictionary of `data` `[N, 3072]` and a list of labels,
//! which is read without executing anything. See <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::base::pickle::{self, Id, Pickle, Value};
use crate::data::small::{planar, put};
use crate::data::subset::{Subset, chosen};
use crate::data::{Inputs, Packed, Split, SplitName};

const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;

/// The functions and classes in pickles of NumPy arrays, as written by Python 2 and 3 with NumPy 1 and 2.
const ARRAYS: [&str; 5] = [
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
];

/// The place of an image's label in a file.
pub struct Layout {
    /// The number of bytes before the pixels of a record.
    pub label_bytes: usize,
    /// The index of the label among these bytes.
    pub label_at: usize,
    /// The key of the list of labels in a pickled dictionary.
    pub label_key: &'static str,
    /// The number of classes; labels are below it.
    pub classes: usize,
}

/// Returns the folder with the files: `root/folder`, or `root` itself if that does not exist.
pub fn folder(root: &Path, folder: &str) -> PathBuf {
    let inside = root.join(folder);
    if inside.is_dir() { inside } else { root.to_path_buf() }
}

/// Returns the file `stem` of the binary version, or that of the Python version if only that exists. It may be in the
/// folder of its version or in `root` itself.
pub fn file(root: &Path, [binary, python]: [&str; 2], stem: &str) -> PathBuf {
    let with_extension = format!("{stem}.bin");
    let first = folder(root, binary).join(&with_extension);
    let others = [root.join(&with_extension), root.join(python).join(stem), root.join(stem)];
    if first.is_file() { first } else { others.into_iter().find(|file| file.is_file()).unwrap_or(first) }
}

/// Reads `files` one after the other, then selects the subset.
///
/// # Errors
/// Fails if a file is missing, is empty, does not have a whole number of records, or is not such a pickle, or if a
/// label is out of range.
pub fn load(name: &str, files: &[PathBuf], layout: &Layout, split: SplitName, subset: Option<Subset>) -> Result<Split> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for file in files {
        if file.extension().is_some_and(|extension| extension == "bin") {
            read(file, layout, &mut pixels, &mut labels)?;
        } else {
            read_pickle(file, layout, &mut pixels, &mut labels)?;
        }
    }
    let images = Inputs::Packed(Packed { pixels, height: SIDE, width: SIDE });
    let all = Split {
        name: format!("{name}/{split}"),
        inputs: images,
        labels,
        groups: None,
        corrupt_skipped: 0,
        decoded_from: None,
    };
    let kept = chosen(subset, split, &all.labels).with_context(|| format!("data.{name}"))?;
    Ok(match kept {
        Some(indices) => all.select(&indices),
        None => all,
    })
}

fn read(file: &Path, layout: &Layout, pixels: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<()> {
    let at = file.display();
    let bytes = crate::base::files::read_file(file)
        .with_context(|| format!("{at}: cannot read; set data.*.root to the folder of the binary or Python version"))?;
    let record = layout.label_bytes + PIXELS;
    let size = bytes.len();
    ensure!(
        size > 0 && size.is_multiple_of(record),
        "{at}: {size} bytes are no whole number of records of {record} bytes; fetch the binary version again"
    );
    pixels.reserve(size / record * PIXELS);
    for (i, record) in bytes.chunks_exact(record).enumerate() {
        let (head, image) = record.split_at(layout.label_bytes);
        let label = head[layout.label_at];
        if usize::from(label) >= layout.classes {
            bail!("{at}: record {i} has label {label}, but there are {} classes; the file is damaged", layout.classes);
        }
        labels.push(u32::from(label));
        pixels.extend_from_slice(image);
    }
    Ok(())
}

/// Reads a file of the Python version.
fn read_pickle(file: &Path, layout: &Layout, pixels: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<()> {
    let at = file.display();
    let bytes = crate::base::files::read_file(file).with_context(|| format!("{at}: cannot read"))?;
    let again = "fetch the Python version again";
    let batch = pickle::read(&bytes, &|name| ARRAYS.contains(&name));
    let batch = batch.with_context(|| format!("{at}: not a readable pickle; {again}"))?;
    let entry = |key: &str| batch.entry(batch.root(), key).with_context(|| format!("{at}: {again}"));
    let Value::List(found) = batch.value(entry(layout.label_key)?) else {
        bail!("{at}: `{}` is no list", layout.label_key)
    };
    for (i, label) in found.iter().enumerate() {
        let label = batch.integer(*label).and_then(|label| u32::try_from(label).ok());
        let label = label.filter(|&label| (label as usize) < layout.classes);
        let classes = layout.classes;
        labels.push(label.with_context(|| format!("{at}: image {i} has no label from 0 to {}", classes - 1))?);
    }
    let stored = array_bytes(&batch, entry("data")?).with_context(|| format!("{at}: `data` is no array of bytes"))?;
    let (size, needed) = (stored.len(), found.len() * PIXELS);
    ensure!(size == needed && size > 0, "{at}: `data` has {size} bytes, but its {} labels need {needed}", found.len());
    pixels.extend_from_slice(stored);
    Ok(())
}

/// Returns the bytes of a NumPy array, taken from its pickled state (version, shape, type, Fortran order, bytes).
fn array_bytes<'a>(batch: &'a Pickle, array: Id) -> Option<&'a [u8]> {
    let Value::Call { state: Some(state), .. } = batch.value(array) else { return None };
    let [_, _, _, order, bytes] = batch.parts(*state)? else { return None };
    match (batch.value(*order), batch.value(*bytes)) {
        (Value::Bool(false), Value::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

/// Returns the lines of `file` if it exists, otherwise the `published` names.
///
/// # Errors
/// Fails if the file has another number of names.
pub fn class_names(file: &Path, published: &[&str]) -> Result<Vec<String>> {
    if !file.exists() {
        return Ok(published.iter().map(|name| name.to_string()).collect());
    }
    let text = crate::base::files::read_text(file).with_context(|| format!("{}: cannot read", file.display()))?;
    let names: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let (found, wanted) = (names.len(), published.len());
    ensure!(found == wanted, "{}: {found} class names, expected {wanted}; correct or remove the file", file.display());
    Ok(names)
}

/// Writes a file of the binary version: of each image the bytes of its labels and its pixels `[3, 32, 32]`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(file: &Path, images: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
    put(file, images.flat_map(|(labels, pixels)| [labels, pixels].concat()).collect::<Vec<u8>>())
}

/// Writes made-up images, whose numbers `labels` turns into the bytes of their labels.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_made_up(file: &Path, images: Range<usize>, labels: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    write(file, images.map(|i| (labels(i), planar(i, SIDE))))
}

#[cfg(test)]
mod tests;
