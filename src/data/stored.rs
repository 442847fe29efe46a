//! Images as they lie on the disk: files of their own, members of tar archives, which are read from their place, or rows of
//! tables.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::decode::Decode;
use super::table::Rows;
use crate::base::files::{open_file, read_file};

/// Images that are members of tar archives, or rows of tables.
#[derive(Clone, Debug)]
pub struct Members {
    pub archives: Arc<[PathBuf]>,
    /// The images of the rows, if the archives are tables. The place of a member is then its row, and its size that of the table.
    pub rows: Option<Arc<Rows>>,
    /// The place of each image, `[N]`.
    pub of: Vec<Member>,
}

/// The bytes of an archive that are one of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The index of the archive.
    pub archive: u32,
    pub at: u64,
    pub size: u64,
}

impl Members {
    /// Returns the members at `indices`, in that order.
    pub fn select(&self, indices: &[u32]) -> Members {
        let of = indices.iter().map(|&i| self.of[i as usize]).collect();
        Members { archives: self.archives.clone(), rows: self.rows.clone(), of }
    }

    /// Returns the bytes of member i.
    fn read(&self, i: usize) -> Result<Vec<u8>> {
        let Member { archive, at, size } = self.of[i];
        if let Some(rows) = &self.rows {
            return rows.bytes(archive as usize, at as usize);
        }
        let mut file = open_file(&self.archives[archive as usize])?;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = vec![0; size as usize];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Returns the bytes of a file, or of the member of an archive that a path names.
///
/// # Errors
/// Fails if it cannot be read.
pub fn read_image(path: &Path, member: Option<(&Members, usize)>) -> Result<Vec<u8>> {
    let bytes = member.map_or_else(|| Ok(read_file(path)?), |(members, i)| members.read(i));
    bytes.with_context(|| format!("{}: cannot read", path.display()))
}

/// N images on the disk, with the settings for decoding them.
pub struct Stored<'a> {
    /// The files, or the names of members: that of the archive with that of the member behind it.
    pub paths: &'a [PathBuf],
    pub members: Option<&'a Members>,
    pub decode: Decode,
}

impl Stored<'_> {
    /// Returns the bytes of the file of image i.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub fn bytes(&self, i: usize) -> Result<Vec<u8>> {
        read_image(&self.paths[i], self.members.map(|members| (members, i)))
    }

    /// Returns image i, decoded and resized.
    ///
    /// # Errors
    /// Fails if it cannot be read or decoded.
    pub fn decoded(&self, i: usize) -> Result<Vec<u8>> {
        self.decode.bytes(&self.bytes(i)?, &self.paths[i])
    }
}
