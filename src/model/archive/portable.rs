//! Makes archives that were traced on a GPU run on the CPU. Their code names the GPU (`torch.device("cuda:0")`, as
//! OpenAI's archives do), so they would not run elsewhere; the code is read with the CPU in its place.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::container::is_code;

const NAMED: [&str; 2] = ["torch.device(\"cuda:0\")", "torch.device(\"cuda\")"];
const INSTEAD: &str = "torch.device(\"cpu\")";

/// Returns the archive at `path` with the CPU in place of every GPU that `code` names; `None` if it names none.
///
/// # Errors
/// Fails if the archive cannot be read.
pub fn rewritten(path: &Path, code: &str) -> Result<Option<Vec<u8>>> {
    if !NAMED.iter().any(|named| code.contains(named)) {
        return Ok(None);
    }
    let copied = copy(path).with_context(|| format!("{}: cannot be read with the CPU for its GPU", path.display()))?;
    Ok(Some(copied))
}

fn copy(path: &Path) -> Result<Vec<u8>> {
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
        for named in NAMED {
            code = code.replace(named, INSTEAD);
        }
        target.start_file(name, SimpleFileOptions::default().compression_method(CompressionMethod::Stored))?;
        target.write_all(code.as_bytes())?;
    }
    Ok(target.finish()?.into_inner())
}
