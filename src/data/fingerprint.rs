//! Identifies the images of a test set in results. The fingerprint does not depend on the folder of the files, nor on
//! whether the images are kept in memory or read from files when needed.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use super::decode::is_turned;
use super::{Files, Groups, Inputs, Split};
use crate::base::files::read_file;
use crate::schema::Choice;

/// The size in bytes of a block. Of a file longer than three blocks, only its beginning, middle and end are read.
const BLOCK: u64 = 8 << 10;

/// The number of hexadecimal digits that results show.
const SHOWN: usize = 12;

/// The SHA-256 hash of the images, labels or numbers, and groups of a split.
///
/// For images that are read from files, it covers their names without folders, their sizes, their contents (three
/// blocks of 8 KiB for a file above 24 KiB) and `data.*.resize`. At most 24 KiB of each file are read. The image size
/// and the filter belong to the checkpoint and are not covered, so that checkpoints of different sizes are tested on
/// the same images. For images that are stored as pixels, it covers the pixels; for texts, the prompts; for questions, the
/// prompts, the answers and the files of the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a split as it was loaded, before any corruption.
    ///
    /// # Errors
    /// Fails if an image file cannot be read.
    pub fn of(split: &Split) -> Result<Fingerprint> {
        let mut hash = Sha256::new();
        hash.update((split.labels.len() as u64).to_le_bytes());
        split.labels.iter().for_each(|label| hash.update(label.to_le_bytes()));
        if let Some(numbers) = &split.numbers {
            hash.update(b"numbers");
            numbers.iter().for_each(|number| hash.update(number.to_le_bytes()));
        }
        split.groups.iter().for_each(|groups| add_groups(&mut hash, groups));
        match (split.files(), &split.inputs) {
            (files, Inputs::Questions(questions)) => {
                hash.update(b"questions");
                questions.describe(&mut |bytes| add_text(&mut hash, bytes));
                files.map_or(Ok(()), |files| add_files(&mut hash, files))?;
            }
            (Some(files), _) => add_files(&mut hash, files)?,
            (None, Inputs::Files(_)) => {}
            (None, Inputs::Packed(packed)) => {
                hash.update(b"pixels");
                [packed.height, packed.width].iter().for_each(|side| hash.update((*side as u64).to_le_bytes()));
                hash.update(&packed.pixels);
            }
            (None, Inputs::Rows(rows)) => {
                hash.update(b"rows");
                rows.describe(&mut |bytes| hash.update(bytes));
            }
            (None, Inputs::Texts(texts)) => {
                hash.update(b"texts");
                texts.prompts.all().for_each(|text| add_text(&mut hash, text.as_bytes()));
            }
        }
        Ok(Fingerprint(hash.finalize().into()))
    }

    /// Returns the fingerprint of a result that is the mean over several sets of images. `parts` are their fingerprints
    /// as shown in results.
    pub fn of_all<'a>(parts: impl Iterator<Item = &'a str>) -> Fingerprint {
        let mut hash = Sha256::new();
        parts.for_each(|part| add_text(&mut hash, part.as_bytes()));
        Fingerprint(hash.finalize().into())
    }

    /// Returns the first 12 hexadecimal digits, as shown in results.
    pub fn short(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..SHOWN].to_string()
    }
}

fn add_groups(hash: &mut Sha256, groups: &Groups) {
    hash.update(b"groups");
    groups.of.iter().for_each(|group| hash.update(group.to_le_bytes()));
    groups.names.iter().for_each(|name| add_text(hash, name.as_bytes()));
}

fn add_files(hash: &mut Sha256, files: &Files) -> Result<()> {
    hash.update(b"files");
    add_text(hash, files.decode.resize.word().as_bytes());
    let one = |(i, path): (usize, &PathBuf)| match files.members {
        None => of_file(path, files.decode.turns),
        Some(_) => Ok(of_bytes(path, &files.bytes(i)?, files.decode.turns)),
    };
    let digests: Result<Vec<[u8; 32]>> = files.paths.par_iter().enumerate().map(one).collect();
    digests?.iter().for_each(|digest| hash.update(digest));
    Ok(())
}

/// Returns the SHA-256 hash of a file's name, size and content. For a long file, three blocks stand for the content. A photo
/// that is turned by its EXIF orientation is another image than the same file as it is stored.
fn of_file(path: &Path, turns: bool) -> Result<[u8; 32]> {
    let (size, bytes) = blocks(path).with_context(|| format!("{}: cannot read", path.display()))?;
    let mut hash = Sha256::new();
    add_text(&mut hash, path.file_name().map_or(&[][..], |name| name.as_encoded_bytes()));
    hash.update(size.to_le_bytes());
    hash.update(&bytes);
    // The orientation of a PNG may stand behind its pixels.
    let is_png = bytes.starts_with(b"\x89PNG");
    let whole = (turns && is_png && size > 3 * BLOCK).then(|| read_file(path)).transpose()?;
    if turns && is_turned(whole.as_deref().unwrap_or(&bytes)) {
        hash.update(b"turned");
    }
    Ok(hash.finalize().into())
}

/// Returns the size of a file and the blocks that stand for its content.
fn blocks(path: &Path) -> std::io::Result<(u64, Vec<u8>)> {
    let mut file = crate::base::files::open_file(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(3 * BLOCK as usize);
    for (start, length) in blocks_in(size) {
        file.seek(SeekFrom::Start(start))?;
        file.by_ref().take(length).read_to_end(&mut bytes)?;
    }
    Ok((size, bytes))
}

/// Returns the beginnings and the lengths of the blocks that stand for content of `size` bytes.
fn blocks_in(size: u64) -> Vec<(u64, u64)> {
    match size <= 3 * BLOCK {
        true => vec![(0, size)],
        false => [0, (size - BLOCK) / 2, size - BLOCK].map(|start| (start, BLOCK)).to_vec(),
    }
}

/// Returns a hash of the content of image i of files, which does not depend on its name, nor on whether the image is a file or a part of one.
///
/// # Errors
/// Fails if it cannot be read.
pub(super) fn content_of(files: &Files, i: usize) -> Result<u128> {
    let bytes = match files.members {
        None => blocks(&files.paths[i]).with_context(|| format!("{}: cannot read", files.paths[i].display()))?.1,
        Some(_) => {
            let whole = files.bytes(i)?;
            let block = |(start, length): (u64, u64)| &whole[start as usize..(start + length) as usize];
            blocks_in(whole.len() as u64).into_iter().map(block).collect::<Vec<_>>().concat()
        }
    };
    Ok(xxh3_128(&bytes))
}

/// Returns the same hash of an image that is a part of a file.
fn of_bytes(path: &Path, bytes: &[u8], turns: bool) -> [u8; 32] {
    let mut hash = Sha256::new();
    add_text(&mut hash, path.file_name().map_or(&[][..], |name| name.as_encoded_bytes()));
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
    if turns && is_turned(bytes) {
        hash.update(b"turned");
    }
    hash.finalize().into()
}

/// Adds a text to the hash. Its length comes first, so that different lists of texts never have the same bytes.
fn add_text(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::data::testing::{REQUEST, put, set};
    use crate::data::{DATASETS, Dataset, Packed, Request, SplitName};

    fn folder(root: &Path, extra: &str) -> Box<dyn Dataset> {
        set(DATASETS.iter().find(|entry| entry.key == "image-folder").unwrap(), root, extra)
    }

    fn load(set: &dyn Dataset, memory_bytes: usize) -> Split {
        set.load(SplitName::Test, &Request { memory_bytes, ..REQUEST }).unwrap()
    }

    fn of(root: &Path, extra: &str) -> Fingerprint {
        Fingerprint::of(&load(&*folder(root, extra), 0)).unwrap()
    }

    /// Writes two bitmaps, whose file sizes do not depend on their pixels.
    fn two_images(root: &Path, gray: u8) {
        put(root, "ant/a.bmp", gray);
        put(root, "bee/a.bmp", 7);
    }

    /// exiftool writes the orientation of a PNG behind its pixels, where no block of a long file may lie.
    #[test]
    fn an_orientation_behind_the_pixels_counts() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, photo] = ["plain", "photo"].map(|name| folder.path().join(name).join("a.png"));
        let noise = |x: u32, y: u32| {
            [0u32, 1, 2].map(|c| ((x * 7919 + y * 104_729 + c * 31).wrapping_mul(2_654_435_761) >> 24) as u8)
        };
        for path in [&plain, &photo] {
            fs::create_dir(path.parent().unwrap()).unwrap();
            image::RgbImage::from_fn(160, 160, |x, y| image::Rgb(noise(x, y))).save(path).unwrap();
        }
        let bytes = fs::read(&photo).unwrap();
        assert!(bytes.len() as u64 > 3 * BLOCK, "{}", bytes.len());
        let chunk = [&b"eXIfMM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"[..], &[6, 0, 0, 0, 0, 0, 0]].concat();
        let check = crc32fast::hash(&chunk).to_be_bytes();
        let chunk = [&(chunk.len() as u32 - 4).to_be_bytes()[..], &chunk, &check].concat();
        let end = bytes.len() - 12;
        fs::write(&photo, [&bytes[..end], &chunk, &bytes[end..]].concat()).unwrap();
        assert!(is_turned(&fs::read(&photo).unwrap()));
        let differs = |path: &Path| of_file(path, true).unwrap() != of_file(path, false).unwrap();
        assert!(differs(&photo) && !differs(&plain));
    }

    #[test]
    fn neither_the_folder_nor_the_way_of_reading_matters() {
        let (place, moved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        two_images(place.path(), 1);
        two_images(&moved.path().join("elsewhere"), 1);
        let set = folder(place.path(), "");
        let (packed, files) = (load(&*set, usize::MAX), load(&*set, 0));
        assert!(matches!(packed.inputs, Inputs::Packed(_)) && matches!(files.inputs, Inputs::Files(_)));
        let fingerprint = Fingerprint::of(&packed).unwrap();
        assert_eq!(fingerprint, Fingerprint::of(&files).unwrap());
        assert_eq!(fingerprint, of(&moved.path().join("elsewhere"), ""));
        assert_eq!(Fingerprint::of(&packed.select(&[1])).unwrap(), Fingerprint::of(&files.select(&[1])).unwrap());
        assert!(Fingerprint::of(&packed.select(&[1])).unwrap() != fingerprint);
        let larger = set.load(SplitName::Test, &Request { image_size: 8, ..REQUEST }).unwrap();
        assert_eq!(fingerprint, Fingerprint::of(&larger).unwrap(), "the size is the checkpoint's");
    }

    #[test]
    fn contents_names_labels_groups_and_resizing_matter() {
        let place = tempfile::tempdir().unwrap();
        let root = |name: &str| place.path().join(name);
        two_images(&root("a"), 1);
        two_images(&root("content"), 2);
        let base = of(&root("a"), "");
        assert!(base != of(&root("content"), ""), "the files have equal names and sizes");
        assert!(base != of(&root("a"), "resize = \"stretch\""));
        assert!(base != of(&root("a"), "classes = [\"bee\", \"ant\"]"), "other labels");
        fs::rename(root("a").join("ant/a.bmp"), root("a").join("ant/b.bmp")).unwrap();
        assert!(base != of(&root("a"), ""));
        let mut grouped = load(&*folder(&root("a"), ""), 0);
        let plain = Fingerprint::of(&grouped).unwrap();
        grouped.groups = Some(Groups { names: vec!["x".into()], of: vec![0, 0] });
        assert!(Fingerprint::of(&grouped).unwrap() != plain);
    }

    // A change in the middle of a file of 30 KiB changes the hash, and a missing file is named.
    #[test]
    fn long_files_are_read_in_blocks() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("long");
        let mut bytes = vec![0u8; 30 << 10];
        fs::write(&path, &bytes).unwrap();
        let before = of_file(&path, false).unwrap();
        assert_eq!(before, of_file(&path, false).unwrap());
        bytes[15 << 10] = 1;
        fs::write(&path, &bytes).unwrap();
        assert!(before != of_file(&path, false).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(format!("{:#}", of_file(&path, false).unwrap_err()).contains("long: cannot read"));
    }

    #[test]
    fn pixels_are_their_own_identity() {
        let split = |gray: u8, width: usize| {
            Split::new("x/test", Inputs::Packed(Packed { pixels: vec![gray; 24], height: 8 / width, width }), vec![0])
        };
        let base = Fingerprint::of(&split(1, 2)).unwrap();
        assert_eq!(base, Fingerprint::of(&split(1, 2)).unwrap());
        assert!(base != Fingerprint::of(&split(2, 2)).unwrap() && base != Fingerprint::of(&split(1, 4)).unwrap());
        assert_eq!(base.short().len(), SHOWN);
        let other = Fingerprint::of(&split(2, 2)).unwrap();
        let (base, other) = (base.short(), other.short());
        let of_all = |parts: [&str; 2]| Fingerprint::of_all(parts.into_iter());
        assert!(of_all([&base, &other]) != of_all([&other, &base]));
    }
}
