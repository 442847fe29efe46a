//! Hashes of files and texts, as hexadecimal digits.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use tch::Tensor;
use xxhash_rust::xxh3::xxh3_64;

use super::tensor::bytes;

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 of a text.
pub fn text_sha256(text: &str) -> String {
    hex(Sha256::digest(text))
}

/// Returns the XXH3 hash (64 bits) of each row of a contiguous tensor `[K, …]` on the CPU. It is fast, and detects
/// accidental damage only.
pub fn of_rows(tensor: &Tensor) -> Vec<u64> {
    let rows = tensor.size().first().map_or(0, |rows| *rows as usize);
    match bytes(tensor) {
        [] => vec![0; rows],
        bytes => bytes.chunks_exact(bytes.len() / rows).map(xxh3_64).collect(),
    }
}

/// Returns the SHA-256 of a file's content. `key` is the setting that named the file.
///
/// # Errors
/// Fails if the file does not exist or cannot be read.
pub fn file_sha256(path: &Path, key: &str) -> Result<String> {
    ensure!(path.is_file(), "{}: no such file: {key} must name an existing one", path.display());
    let mut file = File::open(path).with_context(|| format!("{}: cannot open", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let count = file.read(&mut buffer).with_context(|| format!("{}: cannot read", path.display()))?;
        if count == 0 {
            return Ok(hex(hash.finalize()));
        }
        hash.update(&buffer[..count]);
    }
}
