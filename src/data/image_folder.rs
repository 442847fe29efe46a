//! Image files in folders named for their classes: `root/<class>/…`, or `root/{train,val,test}/<class>/…`.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;
use serde::Serialize;

use super::subset::chosen;
use super::{Dataset, Decode, Entry, Files, Images, Packed, Request, Resize, Split, SplitName, Subset};
use crate::config::Reader;

pub static ENTRY: Entry =
    Entry { key: "image-folder", about: "image files in one folder a class, with or without train/val/test", read };

#[derive(Serialize)]
struct ImageFolder {
    root: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    train: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<String>,
    /// Class folders in the order of their labels; sorted names where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    resize: Resize,
    skip_corrupt: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    subset: Option<Subset>,
}

fn read(reader: &mut Reader) -> Box<dyn Dataset> {
    let root = reader.path("root").required_because("the folder that holds the class folders, or train and test");
    let [train, val, test] = SplitName::ALL.map(|split| reader.string(split.as_str()).optional());
    let classes = reader.strings("classes").optional();
    if let Some(twice) = classes.as_ref().and_then(|names| repeated(names)) {
        reader.problem("classes", format!("each class may be named once: `{twice}` comes twice"));
    }
    let resize = reader.choice("resize").or(Resize::ShorterSideCrop);
    let skip_corrupt = reader.boolean("skip_corrupt").or(false);
    Box::new(ImageFolder { root, train, val, test, classes, resize, skip_corrupt, subset: Subset::read(reader) })
}

fn repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| name)
}

impl Dataset for ImageFolder {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        // The folder's name: results of two folders must not be taken for each other.
        let root = self.root.file_name().map_or(ENTRY.key.to_string(), |name| name.to_string_lossy().into_owned());
        let inside = Path::new(self.test.as_deref().unwrap_or_default()).components();
        let inside = inside.filter(|part| matches!(part, std::path::Component::Normal(_)));
        inside.fold(root, |label, part| format!("{label}/{}", part.as_os_str().to_string_lossy()))
    }

    fn classes(&self) -> Result<Vec<String>> {
        if let Some(given) = &self.classes {
            return Ok(given.clone());
        }
        let folders: Vec<PathBuf> = SplitName::ALL.into_iter().filter_map(|split| self.folder(split).ok()).collect();
        let first = folders.first().map_or(self.root.as_path(), PathBuf::as_path);
        class_folders(first)
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let (mut paths, mut labels) = self.scan(&self.folder(split)?)?;
        if let Some(kept) = chosen(self.subset, split, &labels).context("data.image-folder")? {
            paths = kept.iter().map(|&i| std::mem::take(&mut paths[i as usize])).collect();
            labels = kept.iter().map(|&i| labels[i as usize]).collect();
        }
        let decode = Decode::new(self.resize, request.image_size, &paths[0])?;
        let files = Files { paths, decode, corruption: None };
        let fits = files.decoded_bytes() <= request.memory_bytes;
        let all =
            |images| Split { name: format!("image-folder/{split}"), images, labels, groups: None, corrupt_skipped: 0 };
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

    fn resolved(&self) -> toml::Table {
        crate::config::table(self)
    }
}

impl ImageFolder {
    fn configured(&self, split: SplitName) -> Option<&str> {
        match split {
            SplitName::Train => self.train.as_deref(),
            SplitName::Val => self.val.as_deref(),
            SplitName::Test => self.test.as_deref(),
        }
    }

    /// The folder of a split. A root without any split folder is a test set as a whole.
    fn folder(&self, split: SplitName) -> Result<PathBuf> {
        let root = self.root.display();
        ensure!(self.root.is_dir(), "{root}: no such folder; set data.image-folder.root");
        if let Some(name) = self.configured(split) {
            let folder = self.root.join(name);
            ensure!(folder.is_dir(), "{}: no such folder; set data.image-folder.{split}", folder.display());
            return Ok(folder);
        }
        let folder = self.root.join(split.as_str());
        if folder.is_dir() {
            return Ok(folder);
        }
        let is_split = |name: &SplitName| self.configured(*name).is_some() || self.root.join(name.as_str()).is_dir();
        let others: Vec<&str> = SplitName::ALL.iter().filter(|name| is_split(name)).map(|name| name.as_str()).collect();
        match (others.is_empty(), split) {
            (true, SplitName::Test) => Ok(self.root.clone()),
            (true, _) => bail!(
                "{root}: no folder `{split}`, so the class folders in it are one test set; make {root}/{split}, or name \
                 a folder with data.image-folder.{split}"
            ),
            (false, _) => bail!(
                "{root}: no folder `{split}`, only {}; name a folder with data.image-folder.{split}",
                others.join(", ")
            ),
        }
    }

    /// All image files of a split, sorted by class and path, with their labels.
    fn scan(&self, folder: &Path) -> Result<(Vec<PathBuf>, Vec<u32>)> {
        let classes = self.classes()?;
        let label_of: std::collections::BTreeMap<&str, u32> =
            classes.iter().zip(0..).map(|(name, label)| (name.as_str(), label)).collect();
        let mut found = Vec::new();
        for name in class_folders(folder)? {
            let class = folder.join(&name);
            let label = label_of.get(name.as_str()).with_context(|| {
                let known = classes.len();
                format!(
                    "{}: not one of the {known} classes; remove it, or add it to data.image-folder.classes",
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
        ensure!(self.skip_corrupt, "{text}; replace them, or set data.image-folder.skip_corrupt = true");
        ensure!(failures.len() < split.len(), "{text}; none is left");
        tracing::warn!("{text}; left out");
        let bad: std::collections::BTreeSet<usize> = failures.iter().map(|(i, _)| *i).collect();
        let good: Vec<u32> = (0..split.len()).filter(|i| !bad.contains(i)).map(|i| i as u32).collect();
        Ok(Split { corrupt_skipped: bad.len(), ..split.select(&good) })
    }
}

/// Decodes all files into memory; images that fail stay black.
fn unpack(files: &Files, request: &Request) -> Result<(Packed, Vec<(usize, anyhow::Error)>)> {
    let Decode { height, width, .. } = files.decode;
    let bytes = files.decode.image_bytes();
    let pixels = Mutex::new(vec![0; files.decoded_bytes()]);
    let failures = files.decode_all(request.workers, request.progress, |i, image| {
        // a copy is short against the decoding that went before
        let mut pixels = pixels.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        pixels[i * bytes..(i + 1) * bytes].copy_from_slice(&image);
    })?;
    let pixels = pixels.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok((Packed { pixels, height, width }, failures))
}

/// Names of the folders in `folder`, sorted by code point; hidden ones do not count.
fn class_folders(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in entries(folder)? {
        let name = entry.file_name();
        let name = name.and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{}: the name is not UTF-8; rename it", entry.display()))?;
        if entry.is_dir() && !name.starts_with('.') {
            names.push(name.to_owned());
        }
    }
    ensure!(!names.is_empty(), "{}: no class folders in it; expected <class>/<images>", folder.display());
    names.sort();
    Ok(names)
}

/// Adds the image files below `folder`, known by their extension.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in entries(folder)? {
        if entry.is_dir() {
            collect(&entry, paths)?;
        } else if ImageFormat::from_path(&entry).is_ok_and(|format| format.reading_enabled()) {
            paths.push(entry);
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("{}: cannot list the folder", folder.display());
    let listed: std::io::Result<Vec<PathBuf>> =
        std::fs::read_dir(folder).with_context(failed)?.map(|entry| entry.map(|entry| entry.path())).collect();
    listed.with_context(failed)
}

#[cfg(test)]
mod tests;
