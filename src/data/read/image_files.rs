//! Image files with their labels. Every set of image files uses this module once it knows the label and split of each
//! file. Images that bella does not decode, which would be missed in a folder without a word, are named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
use image::ImageFormat;
use rayon::prelude::*;

use crate::base::small::counted;
use crate::data::stored::{Members, read_image};
use crate::data::subset::chosen;
use crate::data::{Corrupt, Decode, Files, Groups, Inputs, Packed, Request, Resize, Split, SplitName, Subset};
use crate::schema::{Choice, settings};

settings! {
    /// The settings by which files become a split of the data set `key`. Papers on the set resize in the way `usual`.
    #[derive(Clone)]
    pub struct ImageFiles(key: &'static str, usual: Resize) {
        /// The way in which images get the size of the network's input.
        resize: Resize = usual;
        /// Whether images that cannot be decoded are left out with a warning, instead of ending the run.
        skip_corrupt: bool = false;
        subset: Option<Subset>, by Subset::read;
        // Whether images are turned by their EXIF orientation: never those of a published set.
        turns: bool, given false;
        // The registry key, for messages.
        key: &'static str, given key;
    }
}

/// A list of N files, each with its label and its group if the set has groups.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The files, one for each image.
    pub paths: Vec<PathBuf>,
    /// The members of archives that the images are, where they are no files of their own.
    pub members: Option<Members>,
    /// The labels, `[N]`, each below the number of classes.
    pub labels: Vec<u32>,
    /// The numbers in place of classes, `[N]`, if the set has them.
    pub numbers: Option<Vec<f64>>,
    /// The groups that the images belong to, if any.
    pub groups: Option<Groups>,
}

impl Listing {
    /// Keeps the files at `indices`, in that order.
    pub fn select(&mut self, indices: &[u32]) {
        let pick = |of: &[u32]| indices.iter().map(|&i| of[i as usize]).collect();
        self.paths = indices.iter().map(|&i| std::mem::take(&mut self.paths[i as usize])).collect();
        self.labels = pick(&self.labels);
        self.numbers = self.numbers.as_ref().map(|of| indices.iter().map(|&i| of[i as usize]).collect());
        self.members = self.members.as_ref().map(|members| members.select(indices));
        if let Some(groups) = &mut self.groups {
            groups.of = pick(&groups.of);
        }
    }
}

impl ImageFiles {
    /// Creates the settings for all images of a set, none of which may be damaged.
    pub fn whole(key: &'static str, resize: Resize) -> ImageFiles {
        ImageFiles { resize, skip_corrupt: false, subset: None, turns: false, key }
    }

    pub fn subset(&self) -> Option<Subset> {
        self.subset
    }

    /// Returns the same settings for a part of the images.
    pub fn with_subset(self, subset: Option<Subset>) -> ImageFiles {
        ImageFiles { subset, ..self }
    }

    /// Returns whether a damaged image is no reason to end: it is left out, or found when it is decoded.
    fn passes_over(&self, request: &Request) -> bool {
        self.skip_corrupt || request.keeps_corrupt
    }

    /// Returns how the files are decoded. With [`Resize::None`], images have the size of the first one, or of the first
    /// readable one if damaged images are skipped.
    fn decode(&self, request: &Request, listing: &Listing) -> Result<Decode> {
        let by = |i: usize| {
            let path = &listing.paths[i];
            let read = || read_image(path, listing.members.as_ref().map(|members| (members, i)));
            Decode::of(self.resize, self.turns, request, (path, &read))
        };
        match by(0) {
            Err(why) if self.passes_over(request) => (1..listing.paths.len()).find_map(|i| by(i).ok()).ok_or(why),
            first => first,
        }
    }

    /// Returns the settings for images that are turned by their EXIF orientation, or are not.
    pub fn turned(&self, turns: bool) -> ImageFiles {
        ImageFiles { turns, ..self.clone() }
    }

    pub fn resize(&self) -> Resize {
        self.resize
    }

    /// Loads the listed files as a split.
    ///
    /// # Errors
    /// Fails if there is no image, or if a file is missing, empty or cannot be decoded. Empty and undecodable files do
    /// not count if such images are skipped.
    pub fn load(&self, listing: Listing, split: SplitName, request: &Request) -> Result<Split> {
        self.load_part(listing, split, split.word(), request)
    }

    /// Loads the listed files as a part of a split, or a version of one, that is called `part`.
    ///
    /// # Errors
    /// Fails as [`load`](Self::load) does.
    pub fn load_part(&self, mut listing: Listing, split: SplitName, part: &str, request: &Request) -> Result<Split> {
        let name = format!("{}/{part}", self.key);
        ensure!(!listing.paths.is_empty(), "{name}: has no images");
        if let Some(kept) = chosen(self.subset, split, &listing.labels).with_context(|| format!("data.{}", self.key))? {
            listing.select(&kept);
        }
        self.check_files(&name, &listing, request)?;
        let decode = self.decode(request, &listing)?;
        let Listing { paths, members, labels, numbers, groups } = listing;
        let files = Files::new(paths, decode).within(members).with_cache(request)?;
        let fits = files.decoded_bytes() <= request.memory_bytes;
        let all = |inputs, decoded_from| Split { name, inputs, labels, numbers, groups, corrupt: None, decoded_from };
        match (fits, self.skip_corrupt && !request.keeps_corrupt) {
            (true, _) => {
                let (packed, failures) = unpack(&files, request)?;
                self.without(all(Inputs::Packed(packed), Some(files)), &failures)
            }
            // The split must know its size, so this pass over all files only finds those to leave out.
            (false, true) => {
                let failures = files.decode_all(request.workers, request.progress, |_, _| ())?;
                self.without(all(Inputs::Files(files), None), &failures)
            }
            (false, false) => Ok(all(Inputs::Files(files), None)),
        }
    }

    /// Checks that all files exist and are not empty, so that a fault is reported before the first batch and not in the
    /// middle of an epoch.
    fn check_files(&self, name: &str, Listing { paths, members, .. }: &Listing, request: &Request) -> Result<()> {
        let keeps_empty = self.passes_over(request);
        if let Some(members) = members {
            let empty = paths.iter().zip(&members.of).find(|(_, member)| member.size == 0 && !keeps_empty);
            return empty.map_or(Ok(()), |(path, _)| Err(anyhow!("{name}: {} is empty", path.display())));
        }
        let fault = |path: &PathBuf| match path.metadata() {
            Ok(file) if file.len() > 0 || keeps_empty => None,
            Ok(_) => Some(format!("{} is empty", path.display())),
            Err(error) => Some(format!("{}: {error}", path.display())),
        };
        let faults: Vec<String> = paths.par_iter().filter_map(fault).collect();
        let count = faults.len();
        ensure!(
            faults.is_empty(),
            "{name}: {count} of {} listed files cannot be used: {}; put them there, or take them off the list",
            paths.len(),
            some(&faults)
        );
        Ok(())
    }

    /// Leaves out the files that cannot be decoded if the config says so, and fails otherwise.
    fn without(&self, split: Split, failures: &[(usize, anyhow::Error)]) -> Result<Split> {
        if failures.is_empty() {
            return Ok(split);
        }
        let named: Vec<String> = failures.iter().map(|(_, error)| format!("{error:#}")).collect();
        let text =
            format!("{}: {} of {} images cannot be decoded: {}", split.name, failures.len(), split.len(), some(&named));
        ensure!(self.skip_corrupt, "{text}; replace them, or set data.{}.skip_corrupt = true", self.key);
        ensure!(failures.len() < split.len(), "{text}; none is left");
        tracing::warn!("{text}; left out");
        let bad: BTreeSet<usize> = failures.iter().map(|(i, _)| *i).collect();
        let good: Vec<u32> = (0..split.len()).filter(|i| !bad.contains(i)).map(|i| i as u32).collect();
        let corrupt = Corrupt { count: bad.len(), listing: split.listing() };
        Ok(Split { corrupt: Some(corrupt), ..split.select(&good) })
    }
}

/// Returns the first five texts.
pub fn some(texts: &[String]) -> String {
    let more = if texts.len() > 5 { "; …" } else { "" };
    format!("{}{more}", texts[..texts.len().min(5)].join("; "))
}

/// Decodes all files into memory. Images that cannot be decoded stay black.
fn unpack(files: &Files, request: &Request) -> Result<(Packed, Vec<(usize, anyhow::Error)>)> {
    let Decode { height, width, .. } = files.decode;
    let bytes = files.decode.image_bytes();
    let pixels = Mutex::new(vec![0; files.decoded_bytes()]);
    let failures = files.decode_all(request.workers, request.progress, |i, image| {
        // Copying under the lock is fast compared with the decoding before it.
        let mut pixels = pixels.lock().unwrap_or_else(PoisonError::into_inner);
        pixels[i * bytes..(i + 1) * bytes].copy_from_slice(&image);
    })?;
    let pixels = pixels.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((Packed { pixels, height, width }, failures))
}

/// The endings of images that bella does not decode, in small letters.
const UNREAD_ENDINGS: [&str; 27] = [
    "arw", "avif", "avifs", "cr2", "cr3", "cur", "dds", "dng", "exr", "hdr", "heic", "heif", "icb", "ico", "j2c",
    "j2k", "jp2", "jpx", "jxl", "nef", "pcx", "psd", "qoi", "raf", "svg", "tga", "xbm",
];

/// Returns a sentence about the images among the files of a folder that are not taken: those that bella does not decode, and those that it takes
/// for none by their names; `None` if there is none.
pub fn images_among(others: &[PathBuf], folder: &Path) -> Option<String> {
    let ending = |path: &PathBuf| path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let is_unread = |path: &&PathBuf| ending(path).is_some_and(|ending| UNREAD_ENDINGS.contains(&ending.as_str()));
    let (unread, rest): (Vec<&PathBuf>, Vec<&PathBuf>) = others.iter().partition(is_unread);
    let unnamed: Vec<&PathBuf> = rest.into_iter().filter(|path| begins_as_image(path)).collect();
    let endings = |of: &[&PathBuf]| -> String {
        let shown =
            |path: &&PathBuf| ending(path).map_or("without an ending".to_string(), |ending| format!(".{ending}"));
        of.iter().map(shown).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
    };
    let sentences = [
        (!unread.is_empty()).then(|| {
            let count = counted(unread.len(), "image is", "images are");
            format!(
                "{count} in a form that bella does not decode ({}): save what you need as JPEG or PNG",
                endings(&unread)
            )
        }),
        (!unnamed.is_empty()).then(|| {
            let count = counted(unnamed.len(), "image has the name", "images have the names");
            format!("{count} of none ({}): give them the endings of their forms", endings(&unnamed))
        }),
    ];
    let found: Vec<String> = sentences.into_iter().flatten().collect();
    (!found.is_empty()).then(|| format!("{}: {}", folder.display(), found.join("; ")))
}

/// Returns whether a file begins as one of the forms that bella decodes. Forms whose first bytes a text may have, such as `BM`, do not count.
fn begins_as_image(path: &Path) -> bool {
    let mut start = [0; 16];
    let read = std::fs::File::open(path).and_then(|file| std::io::Read::read(&mut { file }, &mut start));
    let known = [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Gif, ImageFormat::WebP, ImageFormat::Tiff];
    read.is_ok_and(|count| image::guess_format(&start[..count]).is_ok_and(|format| known.contains(&format)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::read::class_folders::is_image;

    #[test]
    fn photos_of_phones_are_named_and_notes_are_not() {
        let of = |names: &[&str]| {
            let others: Vec<PathBuf> = names.iter().map(|name| Path::new("a/cat").join(name)).collect();
            images_among(&others, Path::new("a"))
        };
        assert_eq!(of(&["boxes.txt", "Thumbs.db", "heic"]), None);
        assert_eq!(
            of(&["1.HEIC", "2.heic", "3.avif", "notes.md"]).unwrap(),
            "a: 3 images are in a form that bella does not decode (.avif, .heic): save what you need as JPEG or PNG"
        );
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            folder.path().join(name)
        };
        let png = b"\x89PNG\r\n\x1a\n0000";
        let others = [write("1.jpg_large", png), write("2", png), write("README", b"BMP files"), write("3.heic", b"")];
        let said = images_among(&others, Path::new("a")).unwrap();
        let unnamed =
            "2 images have the names of none (.jpg_large, without an ending): give them the endings of their forms";
        assert!(said.starts_with("a: 1 image is in a form") && said.ends_with(unnamed), "{said}");
        assert!(["a.JPE", "a.mpo", "a.dib", "a.jpg"].iter().all(|name| is_image(Path::new(name))));
    }
}
