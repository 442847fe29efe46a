//! CIFAR-10-C and CIFAR-100-C as published (Hendrycks and Dietterich 2019; Zenodo records 2535967 and 3555552). There
//! is one `.npy` file per corruption, u8 `[50000, 32, 32, 3]`: the 10,000 test images at severity 1, then at 2, … 5.
//! The labels are in `labels.npy`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use md5::{Digest, Md5};

use crate::base::files::put;
use crate::data::read::{cifar, npy};
use crate::data::small::{Sizes, SmallSet, value};
use crate::data::subset::kept;
use crate::data::versions::{CORRUPTIONS, SEVERITIES};
use crate::data::{Dataset, Inputs, Packed, Request, Split, SplitName, Subset, Version};
use crate::schema::{Reader, settings, suggest};

const SIDE: u64 = 32;

/// The number of images of each severity. The files hold five times as many.
const IMAGES: u64 = 10_000;

/// The properties in which the two sets differ.
pub struct Published {
    /// The registry key.
    pub key: &'static str,
    /// The folder in the published archive.
    pub folder: &'static str,
    /// The registry key of the set that the images come from.
    pub clean: &'static str,
    /// The class names. The position of a name is its label.
    pub classes: &'static [&'static str],
    /// The MD5 checksum of each file, by its name without `.npy`.
    pub sums: &'static [(&'static str, &'static str)],
}

settings! {
    /// One of the two sets as configured.
    pub struct CifarC(published: &'static Published, images: u64) {
        root: PathBuf, because &format!("the folder that holds {}", published.folder);
        /// Corruptions to read; all published ones by default.
        corruptions: Vec<String> = CORRUPTIONS.map(String::from).to_vec();
        severities: Vec<i64>, by read_severities;
        /// Whether the published checksums are compared.
        verify: bool = true;
        subset: Option<Subset>, by Subset::read;
        published: &'static Published, given published;
        // The number of images of each severity in the files.
        images: u64, given images;
        // The files whose checksum was right. Five severities share one file, which is checked once.
        verified: Mutex<BTreeSet<PathBuf>>, given Mutex::default();
    } then check
}

/// Reads `[data.cifar10-c]` or `[data.cifar100-c]`.
pub fn read(published: &'static Published, reader: &Reader) -> CifarC {
    CifarC::read(reader, published, IMAGES)
}

/// Reads `severities`, each from 1 to 5 and named once. The default is all of them.
pub fn read_severities(reader: &Reader) -> Vec<i64> {
    let severities = reader
        .integers("severities", 1..=5)
        .about("Severities to read; all by default.")
        .or_else(|| SEVERITIES.map(i64::from).to_vec());
    if (1..severities.len()).any(|i| severities[..i].contains(&severities[i])) {
        reader.problem("severities", "each severity may be named once");
    }
    severities
}

impl Dataset for CifarC {
    fn key(&self) -> &'static str {
        self.published.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.published.classes.iter().map(|name| name.to_string()).collect())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(Vec::new())
    }

    /// Always fails. A mixture of corruptions would be a test set that nobody reports on, so there is no plain split.
    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        let Published { key, clean, .. } = self.published;
        match split {
            SplitName::Test => bail!(
                "{key} has no plain test split, only corrupted versions such as gaussian_noise:3, evaluated one by one \
                 (bella eval --data {key}=ROOT); the uncorrupted images are [data.{clean}]"
            ),
            _ => bail!("{key} has corrupted test images only, no split `{split}`; train on [data.{clean}]"),
        }
    }

    fn versions(&self) -> Result<Vec<Version>> {
        self.check_files()?;
        let of = |corruption: &String| {
            let corruption = corruption.clone();
            // The range was checked when the config was read.
            self.severities.iter().map(move |&s| Version { corruption: corruption.clone(), severity: s as u8 })
        };
        Ok(self.corruptions.iter().flat_map(of).collect())
    }

    fn load_version(&self, version: &Version, _request: &Request) -> Result<Split> {
        let key = self.key();
        let known = CORRUPTIONS.contains(&version.corruption.as_str()) && SEVERITIES.contains(&version.severity);
        ensure!(known, "{key}: there is no version `{version}`; versions are corruption:severity, gaussian_noise:3");
        let (file, labels) = (self.file(&version.corruption), self.file("labels"));
        for file in [&file, &labels] {
            self.verify(file)?;
        }
        let end = u64::from(version.severity) * self.images;
        let rows = end - self.images..end;
        let labels = self.labels(&labels)?[rows.start as usize..rows.end as usize].to_vec();
        let pixels = npy::byte_rows(&file, &[5 * self.images, SIDE, SIDE, 3], rows)?;
        let images = Inputs::Packed(Packed { pixels: planar(&pixels), height: SIDE as usize, width: SIDE as usize });
        let all = Split::new(format!("{key}/{version}"), images, labels);
        kept(all, self.subset, SplitName::Test).with_context(|| format!("data.{key}"))
    }
}

impl CifarC {
    fn check(&self, reader: &Reader, _: &'static Published, _: u64) {
        for (i, name) in self.corruptions.iter().enumerate() {
            if !CORRUPTIONS.contains(&name.as_str()) {
                let hint = suggest(name, CORRUPTIONS).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                reader.problem(
                    "corruptions",
                    format!("unknown corruption `{name}`; known: {}{hint}", CORRUPTIONS.join(", ")),
                );
            }
            if self.corruptions[..i].contains(name) {
                reader.problem("corruptions", format!("each corruption may be named once: `{name}` comes twice"));
            }
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        cifar::folder(&self.root, self.published.folder).join(format!("{name}.npy"))
    }

    /// Fails if files are missing and names all of them in one message.
    fn check_files(&self) -> Result<()> {
        let folder = cifar::folder(&self.root, self.published.folder);
        let wanted = self.corruptions.iter().map(String::as_str).chain(["labels"]);
        let missing: Vec<String> =
            wanted.filter(|name| !self.file(name).is_file()).map(|name| format!("{name}.npy")).collect();
        let key = self.key();
        ensure!(
            missing.is_empty(),
            "{}: {} of {} files are missing: {}; add them, set data.{key}.root, or name the corruptions that are there \
             in data.{key}.corruptions",
            folder.display(),
            missing.len(),
            self.corruptions.len() + 1,
            missing.join(", ")
        );
        Ok(())
    }

    /// Returns the labels of all severities, `[5 * images]`.
    fn labels(&self, file: &Path) -> Result<Vec<u32>> {
        let classes = self.published.classes.len();
        let check = |(i, label): (usize, i64)| {
            let within = u32::try_from(label).ok().filter(|&label| (label as usize) < classes);
            within.with_context(|| {
                format!("{}: image {i} has label {label}, but labels are 0 to {}", file.display(), classes - 1)
            })
        };
        npy::integers(file, 5 * self.images)?.into_iter().enumerate().map(check).collect()
    }

    /// Compares a file with its published checksum, once per file.
    fn verify(&self, file: &Path) -> Result<()> {
        let name = file.file_stem().map(|name| name.to_string_lossy());
        let published = self.published.sums.iter().find(|(of, _)| name.as_deref() == Some(*of));
        let Some((_, published)) = published.filter(|_| self.verify) else { return Ok(()) };
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.contains(file) {
            return Ok(());
        }
        let found = md5_of(file)?;
        let key = self.key();
        ensure!(
            found == *published,
            "{}: its MD5 is {found}, the published file's {published}: fetch it again, or set data.{key}.verify = false \
             if the file is meant to differ",
            file.display()
        );
        verified.insert(file.to_path_buf());
        Ok(())
    }
}

fn md5_of(path: &Path) -> Result<String> {
    let failed = || format!("{}: cannot read", path.display());
    let mut file = crate::base::files::open_file(path).with_context(failed)?;
    let (mut hash, mut buffer) = (Md5::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).with_context(failed)? {
            0 => break,
            bytes => hash.update(&buffer[..bytes]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Converts `[N, 32, 32, 3]` to `[N, 3, 32, 32]`.
fn planar(interleaved: &[u8]) -> Vec<u8> {
    let plane = (SIDE * SIDE) as usize;
    let mut pixels = Vec::with_capacity(interleaved.len());
    for image in interleaved.chunks_exact(3 * plane) {
        (0..3).for_each(|channel| pixels.extend(image.iter().skip(channel).step_by(3)));
    }
    pixels
}

impl SmallSet for CifarC {
    fn side(&self) -> u32 {
        SIDE as u32
    }

    /// Names the first corruptions, and turns off the check of checksums, which made-up files do not have.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let corruptions: Vec<String> = self.corruptions.iter().take(sizes.corruptions).cloned().collect();
        toml::Table::from_iter([("verify".to_string(), false.into()), ("corruptions".to_string(), corruptions.into())])
    }

    /// Writes files of the full shape that take only the space of the rows that are read; the other rows are holes.
    fn write(&self, sizes: &Sizes) -> Result<()> {
        let folder = self.root.join(self.published.folder);
        let (images, count) = (self.images as usize, 5 * self.images as usize);
        // The first images of each severity are read, so the labels start anew at each severity.
        let labels: Vec<u8> = (0..count).map(|i| sizes.label(i % images) as u8).collect();
        let header = npy::header("'|u1'", &format!("({count},)"));
        put(&folder.join("labels.npy"), [header, labels].concat())?;
        for (number, corruption) in self.corruptions.iter().enumerate() {
            let path = folder.join(format!("{corruption}.npy"));
            self.sparse(&path, sizes.test.min(images), number)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

impl CifarC {
    /// Writes the first `few` images of each severity.
    fn sparse(&self, path: &Path, few: usize, corruption: usize) -> Result<()> {
        let (side, count) = (SIDE as usize, 5 * self.images);
        let header = npy::header("'|u1'", &format!("({count}, {side}, {side}, 3)"));
        let mut file = File::create(path)?;
        file.write_all(&header)?;
        let image =
            |i: usize| (0..3 * side * side).map(move |at| value(i + corruption, at % 3, at / 3 / side, at / 3 % side));
        let (start, each) = (header.len() as u64, 3 * SIDE * SIDE);
        for severity in 0..SEVERITIES.len() as u64 {
            file.seek(SeekFrom::Start(start + severity * self.images * each))?;
            file.write_all(&(0..few).flat_map(image).collect::<Vec<u8>>())?;
        }
        Ok(file.set_len(start + count * each)?)
    }
}

#[cfg(test)]
mod tests;
