//! Image files in one folder a class: what `image-folder` and `image-folder-c` share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use image::ImageFormat;
use serde::Serialize;

use super::subset::chosen;
use super::{Decode, Files, Images, Packed, Request, Resize, Split, SplitName, Subset};
use crate::config::Reader;

/// How class folders become a split.
#[derive(Serialize)]
pub struct ClassFolders {
    /// Class folders in the order of their labels; sorted names where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    resize: Resize,
    skip_corrupt: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    subset: Option<Subset>,
    /// The registry key, for messages.
    #[serde(skip)]
    key: &'static str,
}

impl ClassFolders {
    /// Reads `classes`, `resize`, `skip_corrupt` and `subset` of `[data.<key>]`.
    pub fn read(key: &'static str, reader: &Reader) -> ClassFolders {
        let classes = reader.strings("classes").optional();
        if let Some(twice) = classes.as_ref().and_then(|names| repeated(names)) {
            reader.problem("classes", format!("each class may be named once: `{twice}` comes twice"));
        }
        let resize = reader.choice("resize").or(Resize::ShorterSideCrop);
        let skip_corrupt = reader.boolean("skip_corrupt").or(false);
        ClassFolders { classes, resize, skip_corrupt, subset: Subset::read(reader), key }
    }

    /// Reads all images of the class folders in `folder`; labels are places in `classes`, `part` is the split or
    /// version that the folder holds.
    ///
    /// # Errors
    /// A class folder that is empty or not one of `classes`; an image that cannot be decoded, unless such are skipped.
    pub fn load(
        &self,
        folder: &Path,
        classes: &[String],
        (split, part): (SplitName, String),
        request: &Request,
    ) -> Result<Split> {
        let (mut paths, mut labels) = self.scan(folder, classes)?;
        if let Some(kept) = chosen(self.subset, split, &labels).with_context(|| format!("data.{}", self.key))? {
            paths = kept.iter().map(|&i| std::mem::take(&mut paths[i as usize])).collect();
            labels = kept.iter().map(|&i| labels[i as usize]).collect();
        }
        let decode = Decode::new(self.resize, request, &paths[0])?;
        let files = Files::new(paths, decode).with_cache(request)?;
        let fits = files.decoded_bytes() <= request.memory_bytes;
        let name = format!("{}/{part}", self.key);
        let all = |images| Split { name, images, labels, groups: None, corrupt_skipped: 0 };
        match (fits, self.skip_corrupt) {
            (true, _) => {
                let (packed, failures) = unpack(&files, request)?;
                self.without(all(Images::Packed(packed)), &failures)
            }
            // a split has to know its size: one pass only looks for files to leave out
            (false, true) => {
                let failures = files.decode_all(request.workers, request.progress, |_, _| ())?;
                self.without(all(Images::Files(files)), &failures)
            }
            (false, false) => Ok(all(Images::Files(files))),
        }
    }

    /// All image files below `folder`, sorted by class and path, with their labels.
    fn scan(&self, folder: &Path, classes: &[String]) -> Result<(Vec<PathBuf>, Vec<u32>)> {
        let label_of: BTreeMap<&str, u32> =
            classes.iter().zip(0..).map(|(name, label)| (name.as_str(), label)).collect();
        let mut found = Vec::new();
        for name in folders(folder, "<class>/<images>")? {
            let class = folder.join(&name);
            let label = label_of.get(name.as_str()).with_context(|| {
                let (known, key) = (classes.len(), self.key);
                format!(
                    "{}: not one of the {known} classes; remove it, or add it to data.{key}.classes",
                    class.display()
                )
            })?;
            found.push((*label, class));
        }
        found.sort();
        let missing = classes.len() - found.len();
        if missing > 0 {
            tracing::warn!("{}: {missing} of {} classes have no folder", folder.display(), classes.len());
        }
        let (mut paths, mut labels) = (Vec::new(), Vec::new());
        for (label, class) in found {
            let before = paths.len();
            collect(&class, &mut paths)?;
            ensure!(paths.len() > before, "{}: no image in this class folder; add some or remove it", class.display());
            paths[before..].sort();
            labels.resize(paths.len(), label);
        }
        Ok((paths, labels))
    }

    /// Deals with the files that cannot be decoded: leaves them out if so configured.
    fn without(&self, split: Split, failures: &[(usize, anyhow::Error)]) -> Result<Split> {
        if failures.is_empty() {
            return Ok(split);
        }
        let named: Vec<String> = failures.iter().take(5).map(|(_, error)| format!("{error:#}")).collect();
        let more = if failures.len() > 5 { "; …" } else { "" };
        let text = format!(
            "{}: {} of {} images cannot be decoded: {}{more}",
            split.name,
            failures.len(),
            split.len(),
            named.join("; ")
        );
        ensure!(self.skip_corrupt, "{text}; replace them, or set data.{}.skip_corrupt = true", self.key);
        ensure!(failures.len() < split.len(), "{text}; none is left");
        tracing::warn!("{text}; left out");
        let bad: BTreeSet<usize> = failures.iter().map(|(i, _)| *i).collect();
        let good: Vec<u32> = (0..split.len()).filter(|i| !bad.contains(i)).map(|i| i as u32).collect();
        Ok(Split { corrupt_skipped: bad.len(), ..split.select(&good) })
    }
}

/// The name that comes twice, if one does.
pub fn repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| name)
}

/// The root's name with the folders inside it: results of two folders must not be taken for each other.
pub fn label(key: &str, root: &Path, inside: &str) -> String {
    let root = root.file_name().map_or(key.to_string(), |name| name.to_string_lossy().into_owned());
    let inside = Path::new(inside).components().filter(|part| matches!(part, Component::Normal(_)));
    inside.fold(root, |label, part| format!("{label}/{}", part.as_os_str().to_string_lossy()))
}

/// Names of the folders in `folder`, sorted by code point; hidden ones do not count. `expected` is what should be there.
pub fn folders(folder: &Path, expected: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in entries(folder)? {
        let name = entry.file_name();
        let name = name.and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{}: the name is not UTF-8; rename it", entry.display()))?;
        if entry.is_dir() && !name.starts_with('.') {
            names.push(name.to_owned());
        }
    }
    ensure!(!names.is_empty(), "{}: no class folders in it; expected {expected}", folder.display());
    names.sort();
    Ok(names)
}

/// Decodes all files into memory; images that fail stay black.
fn unpack(files: &Files, request: &Request) -> Result<(Packed, Vec<(usize, anyhow::Error)>)> {
    let Decode { height, width, .. } = files.decode;
    let bytes = files.decode.image_bytes();
    let pixels = Mutex::new(vec![0; files.decoded_bytes()]);
    let failures = files.decode_all(request.workers, request.progress, |i, image| {
        // a copy is short against the decoding that went before
        let mut pixels = pixels.lock().unwrap_or_else(PoisonError::into_inner);
        pixels[i * bytes..(i + 1) * bytes].copy_from_slice(&image);
    })?;
    let pixels = pixels.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((Packed { pixels, height, width }, failures))
}

/// Adds the image files below `folder`, known by their extension.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in entries(folder)? {
        if entry.is_dir() {
            collect(&entry, paths)?;
        } else if is_image(&entry) {
            paths.push(entry);
        }
    }
    Ok(())
}

/// Whether the extension is that of a format which can be decoded.
pub fn is_image(path: &Path) -> bool {
    ImageFormat::from_path(path).is_ok_and(|format| format.reading_enabled())
}

/// What lies in `folder`, in no order.
///
/// # Errors
/// The folder cannot be listed.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("{}: cannot list the folder", folder.display());
    let listed: std::io::Result<Vec<PathBuf>> =
        std::fs::read_dir(folder).with_context(failed)?.map(|entry| entry.map(|entry| entry.path())).collect();
    listed.with_context(failed)
}
