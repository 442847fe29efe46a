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
use tch::{CModule, Device, IValue};

use crate::base::hash::hex;
use crate::base::tensor::first_line;
use crate::machine::memory_file::MemoryFile;
use crate::model::archive::container::{Code, Container, Writer};

/// The text in front of the name of a device.
const DEVICE: &str = "torch.device(\"";

/// The folder of all entries.
const FOLDER: &str = "archive";

/// The entries that are copied as they are, where there are such.
const COPIED: [&str; 5] = ["version", ".data/version", "byteorder", "data.pkl", "constants.pkl"];

/// The checked parts of an archive.
pub struct Parts<'a> {
    pub container: &'a Container,
    /// The files of code.
    pub code: &'a [Code],
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
        let mut zip = Writer::new(BufWriter::with_capacity(1 << 20, file.file()));
        let wrote = self.write(&mut zip, device).and_then(|()| Ok(zip.finish()?.flush()?));
        wrote.with_context(|| format!("{shown}: its copy cannot be written"))?;
        Ok(file)
    }

    fn write(&self, zip: &mut Writer<impl Write>, device: Device) -> Result<()> {
        let mut text = |name: &str, bytes: &[u8]| -> Result<()> {
            let target = zip.start(&format!("{FOLDER}/{name}"), bytes.len() as u64, crc32fast::hash(bytes))?;
            Ok(target.write_all(bytes)?)
        };
        for name in COPIED.into_iter().filter(|name| self.container.has(name)) {
            text(name, &self.container.text(name)?)?;
        }
        for Code { path, text: code } in self.code {
            text(&format!("code/{path}"), on_device(code, device).as_bytes())?;
        }
        for name in self.storages {
            let (size, crc) = self.container.sums(name)?;
            self.container.copy(name, zip.start(&format!("{FOLDER}/{name}"), size, crc)?)?;
        }
        Ok(())
    }
}

/// Loads a written archive. No other place of bella hands an archive to libtorch.
///
/// # Errors
/// Fails if libtorch cannot load it, with libtorch's message.
pub fn load(path: &Path, device: Device) -> Result<CModule> {
    let module = CModule::load_on_device(path, device);
    let mut module = module.map_err(|e| {
        anyhow!("libtorch cannot load this TorchScript archive, download or export it again: {}", first_line(&e))
    })?;
    module.f_set_eval().map_err(|e| anyhow!("{}", first_line(&e)))?;
    Ok(module)
}

/// Runs a method of a loaded archive. A trial and what follows it run alike.
///
/// # Errors
/// Fails with libtorch's message.
pub fn call(module: &CModule, method: &str, inputs: &[IValue]) -> Result<IValue> {
    // Operators run as they stand, so that autograd sees each of them. Optimised code would derive gradients itself, and leave
    // out what nothing needs.
    tch::jit::f_set_graph_executor_optimize(false).map_err(|e| anyhow!("{}", first_line(&e)))?;
    module.method_is(method, inputs).map_err(|e| anyhow!("{}", first_line(&e)))
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
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_string(),
    };
    let is_one = |named: &str| named == "cpu" || named == "cuda" || named.starts_with("cuda:");
    let mut parts = code.split(DEVICE);
    let mut written = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let named = part.split('"').next().unwrap_or_default();
        written.extend([DEVICE, if is_one(named) { &instead } else { named }, &part[named.len()..]]);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use zip::ZipArchive;

    use super::super::Archive;
    use super::*;

    fn written(name: &str, device: Device) -> (MemoryFile, Archive) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let archive = Archive::open(&path).unwrap();
        (archive.parts().written(device).unwrap(), archive)
    }

    fn entries(file: &MemoryFile) -> Vec<(String, String)> {
        let mut zip = ZipArchive::new(std::fs::File::open(file.path()).unwrap()).unwrap();
        let count = zip.len();
        let read = |index: usize| {
            let (mut entry, mut bytes) = (zip.by_index(index).unwrap(), Vec::new());
            entry.read_to_end(&mut bytes).unwrap();
            (entry.name().unwrap().to_string(), String::from_utf8_lossy(&bytes).into_owned())
        };
        (0..count).map(read).collect()
    }

    #[test]
    fn it_contains_what_libtorch_asks_for_and_nothing_else() {
        // Traced inputs, the number of the archive and storages that no tensor names are left out.
        let (file, archive) = written("timm_traced.pt", Device::Cpu);
        for (name, text) in entries(&file) {
            let name = name.strip_prefix("archive/").unwrap();
            let code = name.strip_prefix("code/").map(|path| Code { path: path.to_string(), text });
            let known = COPIED.contains(&name) || archive.listed.storages.contains(name);
            assert!(known || code.is_some_and(|code| archive.files.contains(&code)), "{name}");
        }
        assert!(archive.container.has("traced_inputs.pkl"));
        let ours = load(file.path(), Device::Cpu).unwrap().named_parameters().unwrap();
        let wanted = archive.parameters().unwrap();
        assert_eq!(ours.len(), wanted.len());
        for (name, tensor) in ours {
            assert!(wanted.iter().any(|(other, value)| *other == name && value.equal(&tensor)), "{name}");
        }
    }

    #[test]
    fn the_same_archive_is_written_in_the_same_bytes_and_for_a_device_in_others() {
        let hashes = |name: &str, device| hash(&written(name, device).0).unwrap();
        let (cpu, gpu) = (Device::Cpu, Device::Cuda(1));
        assert_eq!(hashes("openai_visual.pt", cpu), hashes("openai_visual.pt", cpu));
        let (file, archive) = written("openai_clip.pt", gpu);
        assert!(archive.code_has(DEVICE));
        let code: String = entries(&file).into_iter().map(|(_, text)| text).collect();
        assert!(code.contains("torch.device(\"cuda:1\")"));
        assert_eq!(code.matches(DEVICE).count(), code.matches("torch.device(\"cuda:1\")").count());
    }

    /// An archive may have been traced on any card.
    #[test]
    fn every_device_is_replaced_and_no_other_text() {
        let code = "torch.device(\"cuda:3\"), torch.device(\"cuda\"), torch.device(\"cpu\"), torch.device(\"meta\"), \"cuda:3\"";
        let on = |one: &str| {
            let own = format!("torch.device(\"{one}\"), ").repeat(3);
            format!("{own}torch.device(\"meta\"), \"cuda:3\"")
        };
        assert_eq!(on_device(code, Device::Cpu), on("cpu"));
        assert_eq!(on_device(code, Device::Cuda(3)), on("cuda:3"));
        assert_eq!(on_device("return x", Device::Cpu), "return x");
    }
}
