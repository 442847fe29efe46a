//! Identifies the images of a test set in results. The fingerprint does not depend on the folder of the files, nor on
//! whether the images are kept in memory or read from files when needed.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::decode::is_turned;
use super::{Files, Groups, Images, Inputs, Split};
use crate::schema::Choice;

/// The size in bytes of a block. Of a file longer than three blocks, only its beginning, middle and end are read.
const BLOCK: u64 = 8 << 10;

/// The number of hexadecimal digits that results show.
const SHOWN: usize = 12;

/// The SHA-256 hash of the images, labels and groups of a split.
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
        split.groups.iter().for_each(|groups| add_groups(&mut hash, groups));
        match (&split.decoded_from, &split.inputs) {
            (files, Inputs::Questions(questions)) => {
                hash.update(b"questions");
                questions.describe(&mut |bytes| add_text(&mut hash, bytes));
                match (files, &questions.images) {
                    (Some(files), _) | (None, Images::Files(files)) => add_files(&mut hash, files)?,
                    _ => {}
                }
            }
            (Some(files), _) | (None, Inputs::Files(files)) => add_files(&mut hash, files)?,
            (None, Inputs::Packed(packed)) => {
                hash.update(b"pixels");
                [packed.height, packed.width].iter().for_each(|side| hash.update((*side as u64).to_le_bytes()));
                hash.update(&packed.pixels);
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
    let digests: Result<Vec<[u8; 32]>> = files.paths.par_iter().map(|path| of_file(path, files.decode.turns)).collect();
    digests?.iter().for_each(|digest| hash.update(digest));
    Ok(())
}

/// Returns the SHA-256 hash of a file's name, size and content. For a long file, three blocks stand for the content. A photo
/// that is turned by its EXIF orientation is another image than the same file as it is stored.
fn of_file(path: &Path, turns: bool) -> Result<[u8; 32]> {
    let digest = || -> std::io::Result<[u8; 32]> {
        let mut file = crate::base::files::open_file(path)?;
        let size = file.metadata()?.len();
        let mut hash = Sha256::new();
        add_text(&mut hash, path.file_name().map_or(&[][..], |name| name.as_encoded_bytes()));
        hash.update(size.to_le_bytes());
        let mut bytes = Vec::with_capacity(3 * BLOCK as usize);
        if size <= 3 * BLOCK {
            file.read_to_end(&mut bytes)?;
        } else {
            for start in [0, (size - BLOCK) / 2, size - BLOCK] {
                file.seek(SeekFrom::Start(start))?;
                file.by_ref().take(BLOCK).read_to_end(&mut bytes)?;
            }
        }
        hash.update(&bytes);
        if turns && is_turned(&bytes) {
            hash.update(b"turned");
        }
        Ok(hash.finalize().into())
    };
    digest().with_context(|| format!("{}: cannot read", path.display()))
}

/// Adds a text to the hash. Its length comes first, so that different lists of texts never have the same bytes.
fn add_text(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests;
