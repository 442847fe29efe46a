//! Test images that are among the training images: what is measured on them is too good.
//!
//! Images that are stored alike are compared: pixels with pixels of the same size by their hashes, files with files of the same size by
//! hashes of their contents (three blocks of 8 KiB for a long one), whatever their names. So only few training files are opened; where
//! they would be too many, every second, fourth, … test image is compared. The sizes of images in tables are not known, so that all of
//! few training images are opened there, and none of many. A photo that was saved again is not found.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use anyhow::Result;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::fingerprint::content_of;
use super::images::{Files, Packed};
use super::inputs::Inputs;
use super::split::Split;
use crate::base::small::counted;

/// The largest number of training files that are opened.
const MOST_FILES: usize = 20_000;
/// The number of images that are named.
const NAMED: usize = 10;

/// Test images that are among the training images of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    /// The name of the test set.
    pub set: String,
    /// The number of test images that were found among the training images.
    pub images: usize,
    /// The number of test images that were compared.
    pub compared: usize,
    /// The first ten of those that were found.
    pub names: Vec<PathBuf>,
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.names.iter().map(|name| name.display().to_string()).collect();
        let more = if self.images > self.names.len() { ", …" } else { "" };
        write!(
            f,
            "{}: {} of {} among the training images ({}{more}): numbers on them are too good; leave them out of one of the two",
            self.set,
            counted(self.images, "image is", "images are"),
            counted(self.compared, "image", "images"),
            names.join(", ")
        )
    }
}

/// The training images of a run, with which test images are compared.
pub enum Seen {
    Files(Box<Files>),
    /// The hashes of the pixels of each image, and its size.
    Pixels {
        hashes: BTreeSet<u128>,
        height: usize,
        width: usize,
    },
    /// Samples that are no images.
    Others,
}

impl Seen {
    /// Remembers the images of a split. Files are not opened.
    pub fn of(split: &Split) -> Seen {
        match (split.files(), &split.inputs) {
            (Some(files), _) => Seen::Files(Box::new(files.clone())),
            (None, Inputs::Packed(packed)) => {
                let Packed { height, width, .. } = *packed;
                Seen::Pixels { hashes: hashes(packed).into_iter().collect(), height, width }
            }
            _ => Seen::Others,
        }
    }

    /// Returns the images of a test set that are among these; `None` if none is, or if the two are not stored alike.
    ///
    /// # Errors
    /// Fails if an image cannot be read.
    pub fn overlap(&self, set: &str, tests: &Split) -> Result<Option<Overlap>> {
        let (compared, found) = match (self, tests.files(), &tests.inputs) {
            (Seen::Files(seen), Some(files), _) => among(seen, files)?,
            (Seen::Pixels { hashes: seen, height, width }, None, Inputs::Packed(packed))
                if (*height, *width) == (packed.height, packed.width) =>
            {
                let all = hashes(packed);
                let found = all.iter().enumerate().filter(|(_, hash)| seen.contains(hash));
                (all.len(), found.map(|(at, _)| at).collect())
            }
            _ => return Ok(None),
        };
        let name = |at: usize| tests.files().map_or_else(|| tests.sample_name(at), |files| files.paths[at].clone());
        let names = found.iter().take(NAMED).map(|at| name(*at)).collect();
        let overlap = Overlap { set: set.to_string(), images: found.len(), compared, names };
        Ok((!found.is_empty()).then_some(overlap))
    }
}

fn hashes(packed: &Packed) -> Vec<u128> {
    packed.pixels.par_chunks(packed.image_bytes()).map(xxh3_128).collect()
}

/// Returns the number of test files that were compared, and those of them whose content a training file has.
fn among(seen: &Files, tests: &Files) -> Result<(usize, Vec<usize>)> {
    let (of_seen, of_tests) = match (sizes(seen), sizes(tests)) {
        (Some(of_seen), Some(of_tests)) => (of_seen, of_tests),
        _ => (vec![0; seen.paths.len()], vec![0; tests.paths.len()]),
    };
    let mut candidates: HashMap<u64, Vec<usize>> = HashMap::new();
    of_seen.iter().enumerate().for_each(|(at, size)| candidates.entry(*size).or_default().push(at));
    let mut compared: Vec<usize> = (0..of_tests.len()).collect();
    let opened = loop {
        let sizes: BTreeSet<u64> = compared.iter().map(|at| of_tests[*at]).collect();
        let opened: Vec<usize> = sizes.iter().filter_map(|size| candidates.get(size)).flatten().copied().collect();
        if opened.len() <= MOST_FILES || compared.len() < 2 {
            break opened;
        }
        // Half of them, evenly spread.
        compared = compared.into_iter().step_by(2).collect();
    };
    if opened.len() > MOST_FILES {
        let more = counted(opened.len(), "training image", "training images");
        tracing::info!("the test images are not compared with {more}, of which each would have to be read");
        return Ok((0, Vec::new()));
    }
    let known: BTreeSet<u128> = opened.par_iter().map(|at| content_of(seen, *at)).collect::<Result<_>>()?;
    // Most test images have a size that no training image has, and are not opened.
    let is_known = |at: &usize| -> Result<Option<usize>> {
        let found = candidates.contains_key(&of_tests[*at]) && known.contains(&content_of(tests, *at)?);
        Ok(found.then_some(*at))
    };
    let found: Vec<Option<usize>> = compared.par_iter().map(is_known).collect::<Result<_>>()?;
    Ok((compared.len(), found.into_iter().flatten().collect()))
}

/// Returns the size of each file in bytes; 0 of one that cannot be found. `None` for the rows of tables, whose sizes are not known.
fn sizes(files: &Files) -> Option<Vec<u64>> {
    match &files.members {
        Some(members) if members.rows.is_some() => None,
        Some(members) => Some(members.of.iter().map(|member| member.size).collect()),
        None => Some(files.paths.par_iter().map(|path| path.metadata().map_or(0, |file| file.len())).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::testing::{REQUEST, put, set};
    use crate::data::{DATASETS, Request, SplitName};

    fn split(root: &Path, name: SplitName, memory_bytes: usize) -> Split {
        let entry = DATASETS.iter().find(|entry| entry.key == "image-folder").unwrap();
        set(entry, root, "").load(name, &Request { memory_bytes, ..REQUEST }).unwrap()
    }

    #[test]
    fn files_are_compared_by_content_whatever_their_names() {
        let root = tempfile::tempdir().unwrap();
        for (file, gray) in [("train/a/1", 1), ("train/b/2", 2), ("test/a/9", 3), ("test/b/8", 2), ("test/b/7", 4)] {
            put(root.path(), &format!("{file}.bmp"), gray);
        }
        for memory_bytes in [0, usize::MAX] {
            let seen = Seen::of(&split(root.path(), SplitName::Train, memory_bytes));
            let tests = split(root.path(), SplitName::Test, memory_bytes);
            let found = seen.overlap("mine", &tests).unwrap().unwrap();
            assert_eq!((found.images, found.compared), (1, 3));
            assert!(found.names[0].ends_with("test/b/8.bmp"));
            let text = found.to_string();
            assert!(text.starts_with("mine: 1 image is of 3 images among the training images (/"), "{text}");
        }
        put(root.path(), "test/b/8.bmp", 9);
        let seen = Seen::of(&split(root.path(), SplitName::Train, 0));
        assert_eq!(seen.overlap("mine", &split(root.path(), SplitName::Test, 0)).unwrap(), None);
    }

    #[test]
    fn pixels_are_compared_where_their_sizes_are_equal() {
        let of = |grays: &[u8], width: usize| {
            Split::new(
                "x/test",
                Inputs::Packed(Packed {
                    pixels: grays.iter().flat_map(|gray| vec![*gray; 24]).collect(),
                    height: 8 / width,
                    width,
                }),
                vec![0; grays.len()],
            )
        };
        let seen = Seen::of(&of(&[1, 2, 3], 2));
        let found = seen.overlap("x", &of(&[9, 3, 1, 8], 2)).unwrap().unwrap();
        assert_eq!((found.images, found.compared, &found.names[0]), (2, 4, &PathBuf::from("x/test:1")));
        assert_eq!(seen.overlap("x", &of(&[9, 3], 4)).unwrap(), None, "another size");
        assert_eq!(seen.overlap("x", &of(&[9, 8], 2)).unwrap(), None);
    }
}
