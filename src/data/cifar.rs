//! The binary layout that CIFAR-10 and CIFAR-100 share: records of label bytes and 3072 pixel bytes `[3, 32, 32]`.
//! See <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::subset::{Subset, chosen};
use super::{Images, Packed, Split, SplitName};

const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;

/// The label bytes of a record.
pub struct Layout {
    /// How many there are.
    pub label_bytes: usize,
    /// Which one is the label.
    pub label_at: usize,
    /// Labels are below this.
    pub classes: usize,
}

/// The folder with the files: `root/folder`, or `root` itself where that is absent.
pub fn folder(root: &Path, folder: &str) -> PathBuf {
    let inside = root.join(folder);
    if inside.is_dir() { inside } else { root.to_path_buf() }
}

/// Reads `files` one after the other, then takes the subset.
///
/// # Errors
/// A file that is missing, empty or no whole number of records; a label out of range.
pub fn load(name: &str, files: &[PathBuf], layout: &Layout, split: SplitName, subset: Option<Subset>) -> Result<Split> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for file in files {
        read(file, layout, &mut pixels, &mut labels)?;
    }
    let images = Images::Packed(Packed { pixels, height: SIDE, width: SIDE });
    let all = Split { name: format!("{name}/{split}"), images, labels, groups: None, corrupt_skipped: 0 };
    let kept = chosen(subset, split, &all.labels).with_context(|| format!("data.{name}"))?;
    Ok(match kept {
        Some(indices) => all.select(&indices),
        None => all,
    })
}

fn read(file: &Path, layout: &Layout, pixels: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<()> {
    let at = file.display();
    let bytes = std::fs::read(file)
        .with_context(|| format!("{at}: cannot read; set data.*.root to the folder of the binary version"))?;
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

/// The lines of `file` where it exists, else the `published` names.
///
/// # Errors
/// A file with another number of names.
pub fn class_names(file: &Path, published: &[&str]) -> Result<Vec<String>> {
    if !file.exists() {
        return Ok(published.iter().map(|name| name.to_string()).collect());
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("{}: cannot read", file.display()))?;
    let names: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let (found, wanted) = (names.len(), published.len());
    ensure!(found == wanted, "{}: {found} class names, expected {wanted}; correct or remove the file", file.display());
    Ok(names)
}
