//! The archive that libtorch loads: written anew from what was checked, with nothing in it that was not. So it does not matter
//! what another reader would have found in the original.
//!
//! It contains what torch.jit.load asks for: the version, the code, two pickles and the storages that they name.
//!
//! Archives that were traced on another device name it in their code (`torch.device("cuda:0")`, as OpenAI's archives do), so
//! they would not run elsewhere; the code is written with the wanted device in its place.

use std::collections::BTreeSet;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use sha2::{Digest, Sha256};
use tch::{CModule, Device};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::container::Container;
use crate::base::hash::hex;
use crate::base::tensor::first_line;
use crate::machine::memory_file::MemoryFile;

const CPU: &str = "torch.device(\"cpu\")";
const FIRST_GPU: &str = "torch.device(\"cuda:0\")";
const A_GPU: &str = "torch.device(\"cuda\")";

/// The folder of all entries.
const FOLDER: &str = "archive";

/// The entries that are copied as they are, where there are such.
const COPIED: [&str; 5] = ["version", ".data/version", "byteorder", "data.pkl", "constants.pkl"];

/// The checked parts of an archive.
pub struct Parts<'a> {
    pub container: &'a Container,
    /// The files of code, each a name below `code/` and its text.
    pub code: &'a [(String, String)],
    /// The entries that tensors in the pickles name.
    pub storages: &'a BTreeSet<String>,
}

impl Parts<'_> {
    /// Writes the archive for a device.
    ///
    /// # Errors
    /// Fails if an entry is damaged, or if there is no memory for the file.
    pub fn written(&self, device: Device) -> Result<MemoryFile> {
        let shown = self.container.path.display();
        let file = MemoryFile::new().with_context(|| format!("{shown}: no memory for its copy"))?;
        let mut zip = ZipWriter::new(BufWriter::with_capacity(1 << 20, file.file()));
        let start = |zip: &mut ZipWriter<_>, name: &str, bytes: u64| {
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .last_modified_time(zip::DateTime::default())
                .large_file(bytes > u64::from(u32::MAX / 2));
            zip.start_file(format!("{FOLDER}/{name}"), options)
        };
        for name in COPIED.into_iter().filter(|name| self.container.has(name)) {
            let bytes = self.container.text(name)?;
            start(&mut zip, name, bytes.len() as u64)?;
            zip.write_all(&bytes)?;
        }
        for (name, text) in self.code {
            let text = on_device(text, device);
            start(&mut zip, &format!("code/{name}"), text.len() as u64)?;
            zip.write_all(text.as_bytes())?;
        }
        for name in self.storages {
            start(&mut zip, name, self.container.size(name)?)?;
            self.container.copy(name, &mut zip)?;
        }
        let mut buffer = zip.finish().with_context(|| format!("{shown}: its copy cannot be written"))?;
        buffer.flush().with_context(|| format!("{shown}: its copy cannot be written"))?;
        drop(buffer);
        Ok(file)
    }
}

/// Loads a written archive. No other place of bella hands an archive to libtorch.
///
/// # Errors
/// Fails if libtorch cannot load it, with libtorch's message.
pub fn load(path: &Path, device: Device) -> Result<CModule> {
    let module = CModule::load_on_device(path, device);
    let mut module =
        module.map_err(|e| anyhow!("libtorch cannot load this TorchScript archive: {}", first_line(&e)))?;
    module.f_set_eval().map_err(|e| anyhow!("{}", first_line(&e)))?;
    Ok(module)
}

/// Returns the SHA-256 of a written archive.
pub fn hash(file: &MemoryFile) -> Result<String> {
    let (mut opened, mut hash, mut buffer) = (std::fs::File::open(file.path())?, Sha256::new(), vec![0; 1 << 18]);
    loop {
        match opened.read(&mut buffer)? {
            0 => return Ok(hex(hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Returns code with `device` in place of every other that it names.
fn on_device(code: &str, device: Device) -> String {
    let instead = match device {
        Device::Cuda(index) => format!("torch.device(\"cuda:{index}\")"),
        _ => CPU.to_string(),
    };
    let others = [CPU, FIRST_GPU, A_GPU].into_iter().filter(|named| *named != instead);
    others.fold(code.to_string(), |code, named| code.replace(named, &instead))
}
