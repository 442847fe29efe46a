//! Makes archives that were traced on another device run here. Their code names the device (`torch.device("cuda:0")`, as
//! OpenAI's archives do), so they would not run elsewhere; the code is read with the wanted device in its place.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use tch::Device;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::container::is_code;

const CPU: &str = "torch.device(\"cpu\")";
const FIRST_GPU: &str = "torch.device(\"cuda:0\")";
const A_GPU: &str = "torch.device(\"cuda\")";

/// Returns the archive at `path` with `device` in place of every other that `code` names; `None` if it names none.
///
/// # Errors
/// Fails if the archive cannot be read.
pub fn rewritten(path: &Path, code: &str, device: Device) -> Result<Option<Vec<u8>>> {
    let instead = match device {
        Device::Cuda(index) => format!("torch.device(\"cuda:{index}\")"),
        _ => CPU.to_string(),
    };
    let others: Vec<&str> = [CPU, FIRST_GPU, A_GPU].into_iter().filter(|named| *named != instead).collect();
    if !others.iter().any(|named| code.contains(named)) {
        return Ok(None);
    }
    let copied = copy(path, &others, &instead);
    let copied = copied.with_context(|| format!("{}: cannot be read with {instead} for its device", path.display()))?;
    Ok(Some(copied))
}

fn copy(path: &Path, others: &[&str], instead: &str) -> Result<Vec<u8>> {
    let mut source = ZipArchive::new(std::io::BufReader::new(std::fs::File::open(path)?))?;
    let mut target = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..source.len() {
        let mut entry = source.by_index(index)?;
        let name = entry.name()?.into_owned();
        if !is_code(&name) {
            target.raw_copy_file(entry)?;
            continue;
        }
        let mut code = String::new();
        entry.read_to_string(&mut code)?;
        for named in others {
            code = code.replace(named, instead);
        }
        target.start_file(name, SimpleFileOptions::default().compression_method(CompressionMethod::Stored))?;
        target.write_all(code.as_bytes())?;
    }
    Ok(target.finish()?.into_inner())
}
