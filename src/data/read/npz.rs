//! `.npz` files, as `numpy.savez` and `numpy.savez_compressed` write them: zip archives of `.npy` arrays. An array is read row by row
//! out of its archive.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use zip::read::ZipFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{Header, header, whole_numbers};
use crate::base::files::{open_file, write_atomic};

/// The largest number of bytes that one deflated byte becomes, and room for short entries.
const LARGEST_RATIO: u64 = 1032;
const ROOM: u64 = 1 << 16;

/// An opened archive.
pub struct Npz {
    path: PathBuf,
    archive: ZipArchive<File>,
}

/// An array of an archive, ready to be read from its first element.
pub struct Array<'a> {
    /// The archive and the name, for messages.
    at: String,
    header: Header,
    file: ZipFile<'a, File>,
}

impl Npz {
    /// Opens an archive.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is no zip archive.
    pub fn open(path: &Path) -> Result<Npz> {
        let file = open_file(path).with_context(|| format!("{}: cannot open", path.display()))?;
        let archive = ZipArchive::new(file).ok();
        let archive = archive.with_context(|| format!("{}: not an .npz file: fetch it again", path.display()))?;
        Ok(Npz { path: path.to_path_buf(), archive })
    }

    /// Returns an array.
    ///
    /// # Errors
    /// Fails if there is none of that name, if it is in Fortran order, or if its size is not that of its header.
    pub fn array(&mut self, name: &str) -> Result<Array<'_>> {
        let at = format!("{}: {name}", self.path.display());
        let known = || {
            let names = self.archive.file_names().filter_map(Result::ok);
            let names: Vec<String> = names.map(|file| file.trim_end_matches(".npy").to_string()).collect();
            format!("{}: no array `{name}`, only {}", self.path.display(), names.join(", "))
        };
        let entry = format!("{name}.npy");
        ensure!(self.archive.index_for_name(&entry).is_some(), known());
        let mut file = self.archive.by_name(&entry).with_context(|| format!("{at}: cannot read"))?;
        let (size, packed) = (file.size(), file.compressed_size());
        ensure!(
            size <= packed.saturating_mul(LARGEST_RATIO).saturating_add(ROOM),
            "{at}: {size} bytes out of {packed} packed ones cannot be: the file is damaged, fetch it again"
        );
        let header = Header::read(&mut file).with_context(|| format!("{at}: not an array of numpy: fetch it again"))?;
        ensure!(!header.is_fortran, "{at}: in Fortran order; store it with numpy.ascontiguousarray");
        ensure!(
            header.element.is_none() || header.bytes() == Some(size),
            "{at}: {size} bytes, which are not those of its shape {:?}: the file is damaged, fetch it again",
            header.shape
        );
        Ok(Array { at, header, file })
    }
}

impl Array<'_> {
    pub fn shape(&self) -> &[u64] {
        &self.header.shape
    }

    /// Gives the rows of an array of bytes to `each`, one after the other.
    ///
    /// # Errors
    /// Fails if the elements are no bytes, if the archive is damaged, or if `each` fails.
    pub fn byte_rows(mut self, mut each: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let (at, kind) = (&self.at, &self.header.kind);
        ensure!(
            kind == "u1",
            "{at}: elements of type {kind}, but images are bytes (u1, NumPy's uint8): fetch it again"
        );
        let shape = &self.header.shape;
        let (rows, row) = (shape.first().copied().unwrap_or(0), shape.iter().skip(1).product::<u64>());
        let mut bytes = vec![0; usize::try_from(row)?];
        for at_row in 0..usize::try_from(rows)? {
            self.file.read_exact(&mut bytes).with_context(|| format!("{at}: cannot read: fetch it again"))?;
            each(at_row, &bytes)?;
        }
        // The checksum is compared where the entry ends.
        let rest = self.file.read(&mut [0]).with_context(|| format!("{at}: damaged: fetch it again"))?;
        ensure!(rest == 0, "{at}: longer than its shape: fetch it again");
        Ok(())
    }

    /// Returns all elements of an array of whole numbers.
    ///
    /// # Errors
    /// Fails if the elements are no integers, or if the archive is damaged.
    pub fn integers(self) -> Result<Vec<i64>> {
        whole_numbers(&self.header, self.file, &self.at)
    }
}

/// An array of bytes that is written.
pub struct Written {
    pub name: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Writes an archive of arrays of bytes.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(path: &Path, arrays: &[Written]) -> Result<()> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for Written { name, shape, bytes } in arrays {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        zip.start_file(format!("{name}.npy"), options)?;
        let sides = shape.iter().map(|side| format!("{side},")).collect::<Vec<_>>().join(" ");
        zip.write_all(&header("'|u1'", &format!("({sides})")))?;
        zip.write_all(bytes)?;
    }
    let whole = zip.finish()?.into_inner();
    if whole.is_empty() {
        bail!("{}: no arrays to write", path.display());
    }
    write_atomic(path, |out| Ok(out.write_all(&whole)?))
}
