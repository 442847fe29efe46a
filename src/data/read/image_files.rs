//! Image files with their labels. Every set of image files uses this module once it knows the label and split of each
//! file. Images that bella does not decode, which would be missed in a folder without a word, are named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
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
const UNREAD_ENDINGS: [&str; 18] = [
    "arw", "avif", "cr2", "cr3", "dng", "exr", "hdr", "heic", "heif", "ico", "j2k", "jp2", "jxl", "nef", "psd", "raf",
    "svg", "tga",
];

/// Returns a sentence about the images among the files of a folder that bella does not decode; `None` if there is none.
pub fn images_among(others: &[PathBuf], folder: &Path) -> Option<String> {
    let ending = |path: &PathBuf| path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let found: Vec<String> =
        others.iter().filter_map(ending).filter(|ending| UNREAD_ENDINGS.contains(&ending.as_str())).collect();
    let endings: BTreeSet<String> = found.iter().map(|ending| format!(".{ending}")).collect();
    (!found.is_empty()).then(|| {
        format!(
            "{}: {} in a form that bella does not decode ({}): save what you need as JPEG or PNG",
            folder.display(),
            counted(found.len(), "image is", "images are"),
            endings.into_iter().collect::<Vec<_>>().join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
