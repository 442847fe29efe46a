//! The zip file of an archive, which is not trusted. It is read as libtorch would read it; declared sizes are compared
//! with the size of the file before anything is unpacked, and every entry is compared with its CRC-32.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use zip::ZipArchive;

/// The largest number of bytes of code or of a pickle: a thousand times that of the usual models.
const MAX_TEXT: u64 = 64 << 20;

/// The largest compression ratio. Entries may be compressed, but weights do not become much smaller by it.
const MAX_RATIO: u64 = 16;

/// The number of bytes to which a small archive may unpack with any compression ratio.
const ALWAYS: u64 = 16 << 20;

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
    zip: RefCell<ZipArchive<BufReader<File>>>,
    /// The folder that contains all entries.
    folder: String,
    names: Vec<String>,
}

impl Container {
    /// Opens a zip file that torch wrote.
    ///
    /// # Errors
    /// Fails if the file does not exist, is not a zip file, or has suspicious sizes or names.
    pub fn open(path: &Path) -> Result<Container> {
        let shown = path.display();
        ensure!(
            path.is_file(),
            "{shown}: no such checkpoint: set checkpoint.path to the folder, the file of weights or the archive (.pt) of a network"
        );
        let mut file = File::open(path).with_context(|| format!("{shown}: cannot open"))?;
        let bytes = file.metadata().with_context(|| format!("{shown}: cannot read"))?.len();
        let plain = is_plain(&mut file, bytes).with_context(|| format!("{shown}: cannot read"))?;
        let mut zip = ZipArchive::new(BufReader::new(file)).map_err(|e| match kind_of_file(path) {
            Some(kind) => anyhow!("{shown}: not a TorchScript archive but {kind}: {EXPORT}"),
            None => anyhow!("{shown}: not a TorchScript archive, or a truncated one ({e}): {EXPORT}"),
        })?;
        let names = check(&mut zip, bytes).with_context(|| shown.to_string())?;
        ensure!(plain, "{shown}: something stands before or behind the zip file: export the model with torch.jit.save");
        let folder = names.first().and_then(|name| name.split_once('/')).map_or("", |(folder, _)| folder).to_string();
        Ok(Container { path: path.to_path_buf(), zip: RefCell::new(zip), folder, names })
    }

    /// Returns whether the zip file contains TorchScript code.
    pub fn has_code(&self) -> bool {
        self.code_files().next().is_some()
    }

    /// Returns the names of the code files.
    fn code_files(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| is_code(name))
    }

    /// Returns whether the archive's folder has an entry of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&format!("{}/{name}", self.folder))
    }

    /// Returns the content of an entry of code or of a pickle, given its name in the archive's folder.
    pub fn text(&self, name: &str) -> Result<Vec<u8>> {
        self.whole(&format!("{}/{name}", self.folder), MAX_TEXT)
    }

    /// Returns the content of an entry of tensor data.
    pub fn data(&self, name: &str) -> Result<Vec<u8>> {
        self.whole(&format!("{}/{name}", self.folder), u64::MAX)
    }

    /// Returns the number of bytes of an entry.
    pub fn size(&self, name: &str) -> Result<u64> {
        let mut zip = self.zip.borrow_mut();
        let entry = zip.by_name(&format!("{}/{name}", self.folder));
        Ok(entry.with_context(|| format!("{}: damaged entry {name}", self.path.display()))?.size())
    }

    /// Returns the code files with their names below `code/`.
    pub fn code(&self) -> Result<Vec<(String, String)>> {
        let (mut files, mut left) = (Vec::new(), MAX_TEXT);
        for name in self.code_files() {
            let bytes = self.whole(name, left)?;
            left -= bytes.len() as u64;
            let text = String::from_utf8(bytes);
            let text = text.map_err(|_| anyhow!("{}: {name}: the code is not UTF-8", self.path.display()))?;
            let inside = name.split_once("/code/").map_or(name, |(_, inside)| inside);
            files.push((inside.to_string(), text));
        }
        Ok(files)
    }

    fn whole(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        let shown = self.path.display();
        let mut zip = self.zip.borrow_mut();
        let mut entry = zip.by_name(name).with_context(|| format!("{shown}: damaged entry {name}"))?;
        let size = entry.size();
        ensure!(
            size <= limit,
            "{shown}: {name} declares {size} bytes, more than any model has there: it is not loaded"
        );
        let mut bytes = Vec::with_capacity(size as usize);
        // Read to the end, where the CRC-32 is compared. An entry that is longer than declared is damaged.
        entry
            .by_ref()
            .take(size.saturating_add(1))
            .read_to_end(&mut bytes)
            .with_context(|| format!("{shown}: damaged entry {name}: fetch or export the archive again"))?;
        ensure!(bytes.len() as u64 == size, "{shown}: {name} has {} bytes, not {size}: it is damaged", bytes.len());
        Ok(bytes)
    }
}

/// Returns whether an entry of an archive is a file of code, by its name.
pub fn is_code(name: &str) -> bool {
    name.contains("/code/") && name.ends_with(".py")
}

/// Returns whether the file begins with an entry and ends with the directory, so that every reader finds the same zip
/// in it.
fn is_plain(file: &mut File, bytes: u64) -> std::io::Result<bool> {
    const END: u64 = 22;
    let (mut start, mut end) = ([0; 4], [0; END as usize]);
    if bytes < END {
        return Ok(false);
    }
    file.read_exact(&mut start)?;
    file.seek(SeekFrom::Start(bytes - END))?;
    file.read_exact(&mut end)?;
    file.rewind()?;
    Ok(start == *b"PK\x03\x04" && end.starts_with(b"PK\x05\x06") && end.ends_with(&[0, 0]))
}

/// Checks the declared sizes and names of all entries, and returns the names.
fn check(zip: &mut ZipArchive<BufReader<File>>, bytes: u64) -> Result<Vec<String>> {
    let (mut declared, mut names, mut seen) = (0u64, Vec::new(), BTreeSet::new());
    for index in 0..zip.len() {
        let entry = zip.by_index_raw(index).context("damaged directory")?;
        let name = entry.name().context("an entry's name is not UTF-8")?.into_owned();
        declared = declared.saturating_add(entry.size());
        // libtorch ignores case when it looks up names.
        ensure!(seen.insert(name.to_ascii_lowercase()), "two entries are named {name}: it is not loaded");
        names.push(name);
    }
    ensure!(
        declared <= ALWAYS.max(bytes.saturating_mul(MAX_RATIO)),
        "its entries declare {declared} bytes in a file of {bytes}, which no model's weights unpack to: it is not loaded"
    );
    ensure!(zip.offset() == 0, "something stands before the zip file: export the model with torch.jit.save");
    Ok(names)
}
