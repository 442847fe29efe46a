//! The zip file of an archive, which is not trusted. It is parsed once, here; declared sizes are compared with the size of
//! the file before anything is unpacked, and every entry is compared with its CRC-32. libtorch never sees this file but
//! the one that is written anew from what was checked.
//!
//! [`Writer`] writes zip files in the plainest form: no compression, no fields that nothing calls for, one directory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use flate2::read::DeflateDecoder;

use crate::base::files::most_unpacked;
use crate::model::archive::directory::{self, CENTRAL, END, END64, END64_BYTES, Entry, LOCAL, LOCATOR, WIDE};

/// The largest number of bytes of code or of a pickle: a thousand times that of the usual models.
const MAX_TEXT: u64 = 64 << 20;

/// The way from weights of other files to an archive.
const EXPORT: &str = "export the network, for example with scripts/export_torchscript.py (which reads weights of timm and \
    torchvision by `--weights FILE`) or torch.jit.save";

/// Returns what a file is that is no zip file, by its first bytes.
fn kind_of_file(path: &Path) -> Option<&'static str> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(16).read_to_end(&mut start).ok()?;
    match start[..] {
        [_, _, _, _, _, 0, 0, 0, b'{', ..] => Some("a safetensors file, which holds tensors without a network"),
        [0x80, 2..=5, ..] => Some("a pickle, as torch.save wrote before PyTorch 1.6"),
        [0x89, b'H', b'D', b'F', ..] => Some("an HDF5 file, as Keras writes"),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some("a NumPy array"),
        _ => None,
    }
}

/// An opened archive.
pub struct Container {
    pub path: PathBuf,
    file: RefCell<File>,
    /// The folder that contains all entries.
    folder: String,
    /// The entries by their names in the folder, in the order of the directory.
    entries: Vec<Entry>,
    places: BTreeMap<String, usize>,
    /// The texts that were read. Whoever asks again gets what was checked, whatever has become of the file.
    texts: RefCell<BTreeMap<String, Rc<Vec<u8>>>>,
}

impl Container {
    /// Opens a zip file that torch wrote.
    ///
    /// # Errors
    /// Fails if the file does not exist, is not a zip file, or if two readers of zip files could find different things in
    /// it, or if it has suspicious sizes or names.
    pub fn open(path: &Path) -> Result<Container> {
        let shown = path.display();
        ensure!(
            path.is_file(),
            "{shown}: no such checkpoint: set checkpoint.path to the folder, the file of weights or the archive (.pt) of a network"
        );
        let mut file = File::open(path).with_context(|| format!("{shown}: cannot open"))?;
        let bytes = file.metadata().with_context(|| format!("{shown}: cannot read"))?.len();
        let entries = directory::read(&mut file, bytes).with_context(|| shown.to_string())?;
        let mut entries = entries.with_context(|| match kind_of_file(path) {
            Some(kind) => format!("{shown}: not a TorchScript archive but {kind}: {EXPORT}"),
            None => format!("{shown}: not a TorchScript archive, or a truncated one: {EXPORT}"),
        })?;
        check_sizes(&entries, bytes).with_context(|| shown.to_string())?;
        let first = entries.first().and_then(|entry| entry.name.split_once('/'));
        let folder = first.map_or("", |(folder, _)| folder).to_string();
        for entry in &mut entries {
            let inside = entry.name.strip_prefix(&folder).and_then(|rest| rest.strip_prefix('/'));
            let inside = inside.filter(|inside| !inside.is_empty()).map(str::to_string);
            entry.name = inside.with_context(|| {
                format!(
                    "{shown}: its entry {} lies outside the folder of the others, which torch does not write",
                    entry.name
                )
            })?;
        }
        let places = entries.iter().enumerate().map(|(at, entry)| (entry.name.clone(), at)).collect();
        let (file, texts) = (RefCell::new(file), RefCell::default());
        Ok(Container { path: path.to_path_buf(), file, folder, entries, places, texts })
    }

    /// Returns whether the zip file contains TorchScript code.
    pub fn has_code(&self) -> bool {
        self.entries.iter().any(|entry| is_below_code(&entry.name))
    }

    /// Returns whether the archive has an entry of this name.
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Returns the content of an entry of code or of a pickle, which is read once.
    pub fn text(&self, name: &str) -> Result<Rc<Vec<u8>>> {
        if let Some(known) = self.texts.borrow().get(name) {
            return Ok(known.clone());
        }
        let read = Rc::new(self.whole(name, MAX_TEXT)?);
        self.texts.borrow_mut().insert(name.to_string(), read.clone());
        Ok(read)
    }

    /// Returns the content of an entry of tensor data.
    pub fn data(&self, name: &str) -> Result<Vec<u8>> {
        self.whole(name, u64::MAX)
    }

    /// Returns the number of bytes of an entry.
    pub fn size(&self, name: &str) -> Result<u64> {
        Ok(self.entry(name)?.size)
    }

    /// Returns the number of bytes of an entry, and its CRC-32, with which [`copy`](Self::copy) compares it.
    pub fn sums(&self, name: &str) -> Result<(u64, u32)> {
        self.entry(name).map(|entry| (entry.size, entry.crc))
    }

    /// Returns the files of code.
    ///
    /// # Errors
    /// Fails if anything else lies below `code/`, whatever its case, but for the places of the code in the original source,
    /// which nothing needs.
    pub fn code(&self) -> Result<Vec<Code>> {
        let (mut files, mut left) = (Vec::new(), MAX_TEXT);
        for Entry { name, .. } in self.entries.iter().filter(|entry| is_below_code(&entry.name)) {
            let shown = format!("{}: {}/{name}", self.path.display(), self.folder);
            let inside = name.strip_prefix("code/").filter(|inside| inside.is_ascii());
            match inside.and_then(|inside| inside.split_once('.')) {
                Some((stem, "py")) if !stem.is_empty() => {}
                Some((_, "py.debug_pkl")) => continue,
                _ => bail!("{shown}: torch.jit.save writes no such entry among the code: it is not loaded"),
            }
            let bytes = self.whole(name, left)?;
            left -= bytes.len() as u64;
            let text = String::from_utf8(bytes).map_err(|_| anyhow!("{shown}: the code is not UTF-8"))?;
            files.push(Code { path: inside.unwrap_or_default().to_string(), text });
        }
        Ok(files)
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        let place = self.places.get(name).map(|at| &self.entries[*at]);
        place.with_context(|| format!("{}: no entry {name}: it is damaged", self.path.display()))
    }

    fn whole(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        let (shown, size) = (self.path.display(), self.size(name)?);
        ensure!(
            size <= limit,
            "{shown}: {name} declares {size} bytes, more than any model has there: it is not loaded"
        );
        let mut bytes = Vec::with_capacity(size as usize);
        self.copy(name, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the content of an entry to `target`.
    ///
    /// # Errors
    /// Fails if the content has another size or another CRC-32 than the directory says, or if it cannot be written.
    pub fn copy(&self, name: &str, target: &mut dyn Write) -> Result<()> {
        let (shown, entry) = (self.path.display(), self.entry(name)?);
        let damaged = || format!("{shown}: damaged entry {}/{name}: fetch or export the archive again", self.folder);
        let mut file = self.file.borrow_mut();
        file.seek(SeekFrom::Start(entry.data)).with_context(damaged)?;
        let packed = (&mut *file).take(entry.packed);
        let content: Box<dyn Read> =
            if entry.deflated { Box::new(DeflateDecoder::new(BufReader::new(packed))) } else { Box::new(packed) };
        // An entry that is longer than declared is damaged.
        let mut content = content.take(entry.size.saturating_add(1));
        let (mut crc, mut buffer, mut count) = (crc32fast::Hasher::new(), vec![0; 1 << 18], 0);
        loop {
            let read = content.read(&mut buffer).with_context(damaged)?;
            if read == 0 {
                break;
            }
            count += read as u64;
            crc.update(&buffer[..read]);
            target.write_all(&buffer[..read]).with_context(|| format!("{shown}: cannot be copied"))?;
        }
        ensure!(count == entry.size && crc.finalize() == entry.crc, damaged());
        Ok(())
    }
}

/// A file of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its path below `code/`.
    pub path: String,
    pub text: String,
}

impl Code {
    /// Returns the name of its module, such as `__torch__.models`.
    pub fn module(&self) -> String {
        self.path.trim_end_matches(".py").replace('/', ".")
    }
}

/// Returns whether a name in the archive's folder belongs to the code, for readers that ignore case.
fn is_below_code(name: &str) -> bool {
    name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("code/"))
}

/// Checks the declared sizes of all entries.
fn check_sizes(entries: &[Entry], bytes: u64) -> Result<()> {
    let declared = entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
    ensure!(
        declared <= most_unpacked(bytes),
        "its entries declare {declared} bytes in a file of {bytes}, which no model's weights unpack to: it is not loaded"
    );
    Ok(())
}

/// A zip file that is written from its first byte to its last. Its bytes depend on nothing but its entries, which are stored as
/// they are.
pub struct Writer<W: Write> {
    target: W,
    /// The number of bytes that entries have taken so far.
    at: u64,
    entries: u64,
    directory: Vec<u8>,
}

/// Returns a number as headers have it whose fields for it have 32 bits.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn is_wide(value: u64) -> bool {
    narrow(value) == u32::MAX
}

/// Returns the extra field of these values; nothing if there are none.
fn wide_field(values: &[u64]) -> Vec<u8> {
    let head = [WIDE, 8 * values.len() as u16].map(u16::to_le_bytes).concat();
    let values = values.iter().flat_map(|value| value.to_le_bytes());
    if values.clone().next().is_none() { Vec::new() } else { head.into_iter().chain(values).collect() }
}

impl<W: Write> Writer<W> {
    pub fn new(target: W) -> Writer<W> {
        Writer { target, at: 0, entries: 0, directory: Vec::new() }
    }

    /// Starts an entry, whose content of `size` bytes the caller writes to what is returned.
    pub fn start(&mut self, name: &str, size: u64, crc: u32) -> std::io::Result<&mut W> {
        // Version 4.5 of the format, no flags, stored, on 1 January 1980.
        let shared = [
            [45u16, 0, 0, 0, 33].map(u16::to_le_bytes).concat(),
            [crc, narrow(size), narrow(size)].map(u32::to_le_bytes).concat(),
        ]
        .concat();
        let sizes: &[u64] = if is_wide(size) { &[size, size] } else { &[] };
        let start = is_wide(self.at).then_some(self.at);
        let (local, central) =
            (wide_field(sizes), wide_field(&sizes.iter().copied().chain(start).collect::<Vec<u64>>()));
        let lengths = |extra: &[u8]| [name.len() as u16, extra.len() as u16].map(u16::to_le_bytes).concat();
        let header = [LOCAL, &shared, &lengths(&local), name.as_bytes(), &local].concat();
        let made = 45u16.to_le_bytes();
        let place = narrow(self.at).to_le_bytes();
        let entry = [CENTRAL, &made, &shared, &lengths(&central), &[0; 10], &place, name.as_bytes(), &central].concat();
        self.directory.extend(entry);
        self.target.write_all(&header)?;
        self.at += header.len() as u64 + size;
        self.entries += 1;
        Ok(&mut self.target)
    }

    /// Writes the directory.
    pub fn finish(mut self) -> std::io::Result<W> {
        let (start, size, entries) = (self.at, self.directory.len() as u64, self.entries);
        self.target.write_all(&self.directory)?;
        let count = u16::try_from(entries).unwrap_or(u16::MAX);
        if is_wide(start) || is_wide(size) || count == u16::MAX {
            let record = [[45u16; 2].map(u16::to_le_bytes).concat(), vec![0; 8]].concat();
            let values = [entries, entries, size, start].map(u64::to_le_bytes).concat();
            self.target.write_all(&[END64, &(END64_BYTES - 12).to_le_bytes(), &record, &values].concat())?;
            let disks = [0u32, 1].map(u32::to_le_bytes);
            self.target.write_all(&[LOCATOR, &disks[0], &(start + size).to_le_bytes(), &disks[1]].concat())?;
        }
        let counts = [0, 0, count, count].map(u16::to_le_bytes).concat();
        let place = [narrow(size), narrow(start)].map(u32::to_le_bytes).concat();
        self.target.write_all(&[END, &counts, &place, &[0; 2]].concat())?;
        Ok(self.target)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};

    use super::super::directory::read;
    use super::*;
    use crate::machine::memory_file::MemoryFile;

    #[test]
    fn what_is_written_is_read_also_beyond_32_bits() {
        // The file has holes in place of the contents.
        let (made, mut file) = (MemoryFile::new().unwrap(), None);
        let entries = [("a/version", 2, 7), ("a/data/0", 5 << 30, 8), ("a/data/1", 3, 9)];
        let mut writer = Writer::new(made.file());
        for (name, size, crc) in entries {
            let mut target = *writer.start(name, size, crc).unwrap();
            target.seek(SeekFrom::Current(size as i64)).unwrap();
            file = Some(target);
        }
        writer.finish().unwrap();
        let mut file = file.unwrap().try_clone().unwrap();
        let bytes = file.metadata().unwrap().len();
        let found = read(&mut file, bytes).unwrap().unwrap();
        let found: Vec<_> = found.iter().map(|entry| (entry.name.as_str(), entry.size, entry.crc)).collect();
        assert_eq!(found, entries);
        let mut other = zip::ZipArchive::new(std::fs::File::open(made.path()).unwrap()).unwrap();
        let sizes: Vec<u64> = (0..other.len()).map(|index| other.by_index_raw(index).unwrap().size()).collect();
        assert_eq!(sizes, entries.map(|(_, size, _)| size));
    }
}
