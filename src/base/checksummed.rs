//! safetensors files that carry a hash of their own content, so that damage is noticed when they are read.
//!
//! The hash is XXH3 (64 bits) of the whole file, including the header, with zeros in place of its own digits. It is the
//! first entry of the header's metadata, `content_hash`, so it is at the same place in every file: zeros are written
//! first, then the tensors one by one, then the digits. Every reader of safetensors opens such files. Files without the
//! entry, from other programs, are read unchecked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3Default;

use super::files::write_atomic;

/// The name of the metadata entry that holds the hash.
pub const KEY: &str = "content_hash";

/// The text before the digits; it follows the eight bytes that hold the header's length.
const BEFORE: &str = r#"{"__metadata__":{"content_hash":"xxh3:"#;

/// The position of the digits in the file.
const AT: usize = 8 + BEFORE.len();

const DIGITS: usize = 16;

/// The number of bytes that are hashed at once, while they are still in the processor's cache.
const PIECE: usize = 1 << 18;

/// A tensor of the file.
pub struct Part<'a> {
    pub name: &'a str,
    /// The type as safetensors names it, such as `F32`.
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: usize,
}

#[derive(Serialize)]
struct Entry<'a> {
    dtype: &'static str,
    shape: &'a [usize],
    data_offsets: [usize; 2],
}

/// Writes a file atomically. `content` is called with the index of each part and writes all of its bytes. The parts are
/// stored in the given order, so wide types should come first. Equal content gives equal files.
///
/// # Errors
/// Fails if `content` fails, or if the file cannot be written.
pub fn write(
    path: &Path,
    metadata: &BTreeMap<&str, String>,
    parts: &[Part],
    mut content: impl FnMut(usize, &mut dyn Write) -> Result<()>,
) -> Result<()> {
    let header = header(metadata, parts)?;
    write_atomic(path, |file| {
        let mut hashed = Hashed { to: &mut *file, hash: Xxh3Default::new() };
        hashed.write_all(&(header.len() as u64).to_le_bytes())?;
        hashed.write_all(header.as_bytes())?;
        (0..parts.len()).try_for_each(|part| content(part, &mut hashed))?;
        let digits = format!("{:016x}", hashed.hash.digest());
        file.seek(SeekFrom::Start(AT as u64))?;
        Ok(file.write_all(digits.as_bytes())?)
    })
}

/// Returns the header as JSON, with zeros for the digits and padded with spaces to a multiple of 8 bytes, so that
/// mapped tensors are aligned.
fn header(metadata: &BTreeMap<&str, String>, parts: &[Part]) -> Result<String> {
    let mut text = format!("{BEFORE}{}\"", "0".repeat(DIGITS));
    for (key, value) in metadata.iter().filter(|(key, _)| **key != KEY) {
        text += &format!(",{}:{}", serde_json::to_string(key)?, serde_json::to_string(value)?);
    }
    text += "}";
    let mut start = 0;
    for Part { name, dtype, shape, bytes } in parts {
        let entry = Entry { dtype, shape, data_offsets: [start, start + bytes] };
        start += bytes;
        text += &format!(",{}:{}", serde_json::to_string(name)?, serde_json::to_string(&entry)?);
    }
    text += "}";
    text += &" ".repeat(text.len().next_multiple_of(8) - text.len());
    Ok(text)
}

/// Passes bytes on and hashes them.
struct Hashed<W> {
    to: W,
    hash: Xxh3Default,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(&bytes[..bytes.len().min(PIECE)])?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// Checks the file at `path` against its hash, if it has one. The message does not name the file.
///
/// # Errors
/// Fails if the file cannot be read, or if its content differs from what was written.
pub fn check_file(path: &Path) -> Result<()> {
    check(File::open(path).context("cannot read")?)
}

/// Checks the content of a file against its hash, if it has one.
///
/// # Errors
/// Fails if the content cannot be read, or differs from what was written.
pub fn check(mut content: impl Read) -> Result<()> {
    let mut buffer = vec![0; PIECE];
    let start = fill(&mut content, &mut buffer[..AT + DIGITS])?;
    let Some(stored) = stored_hash(&buffer[..start])? else { return Ok(()) };
    buffer[AT..AT + DIGITS].fill(b'0');
    let mut hash = Xxh3Default::new();
    let mut count = start;
    while count > 0 {
        hash.update(&buffer[..count]);
        count = fill(&mut content, &mut buffer)?;
    }
    let found = format!("{:016x}", hash.digest());
    ensure!(
        found == stored,
        "damaged: its content has the hash {found}, not the {stored} with which it was written: restore it from a copy, or \
         make it again"
    );
    Ok(())
}

/// Checks that the metadata of a file which names its run, and so was written by bella, has the hash.
///
/// # Errors
/// Fails if the hash was removed.
pub fn check_present(metadata: &BTreeMap<String, String>) -> Result<()> {
    ensure!(
        !metadata.contains_key("run") || metadata.contains_key(KEY),
        "damaged: its entry {KEY} was removed: restore the file from a copy, or make it again"
    );
    Ok(())
}

/// Returns the digits in the first bytes of a file; `None` if it has no hash.
fn stored_hash(start: &[u8]) -> Result<Option<String>> {
    let text = String::from_utf8_lossy(start.get(8..).unwrap_or_default());
    if let Some(digits) = text.strip_prefix(BEFORE) {
        return Ok(Some(digits.to_string()));
    }
    if text.contains("content_hash") || text.contains("xxh3:") {
        bail!("damaged: the place of its hash is not as it was written: restore it from a copy, or make it again");
    }
    Ok(None)
}

/// Reads until `buffer` is full or the content ends, and returns the number of bytes.
fn fill(content: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match content.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read"),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    fn written(folder: &Path) -> Vec<u8> {
        let path = folder.join("a.safetensors");
        let parts = [
            Part { name: "wide", dtype: "F64", shape: vec![2], bytes: 16 },
            Part { name: "näme", dtype: "U8", shape: vec![3], bytes: 3 },
        ];
        let metadata = BTreeMap::from([("set", "a \"b\"".to_string())]);
        write(&path, &metadata, &parts, |part, to| {
            let bytes: &[u8] = if part == 0 { &[7; 16] } else { &[1, 2, 3] };
            Ok(to.write_all(bytes)?)
        })
        .unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = written(folder.path());
        check(&bytes[..]).unwrap();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let refused = check(&flipped[..]).is_err() || SafeTensors::deserialize(&flipped).is_err();
            assert!(refused, "bit {} of byte {} is not noticed", bit % 8, bit / 8);
        }
        for length in 0..bytes.len() {
            let refused = check(&bytes[..length]).is_err() || SafeTensors::deserialize(&bytes[..length]).is_err();
            assert!(refused, "a file of {length} bytes is not noticed");
        }
    }

    #[test]
    fn other_readers_of_safetensors_open_it() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = written(folder.path());
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(
            (tensors.tensor("wide").unwrap().data(), tensors.tensor("näme").unwrap().data()),
            (&[7; 16][..], &[1, 2, 3][..])
        );
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        assert_eq!(metadata["set"], "a \"b\"");
        assert!(metadata[KEY].starts_with("xxh3:") && metadata[KEY] != "xxh3:0000000000000000");
    }

    // The digits are those of `xxhsum -H3` on the file with zeros in their place.
    #[test]
    fn the_hash_is_xxh3_of_the_file_with_zeros_for_its_digits() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = written(folder.path());
        let digits = String::from_utf8(bytes[AT..AT + DIGITS].to_vec()).unwrap();
        bytes[AT..AT + DIGITS].fill(b'0');
        assert_eq!(digits, format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)));
    }

    #[test]
    fn files_without_a_hash_are_not_checked() {
        let tensor = safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![2], &[1, 2]).unwrap();
        check(&safetensors::serialize([("a", tensor)], None).unwrap()[..]).unwrap();
        check(&b""[..]).unwrap();
    }
}
