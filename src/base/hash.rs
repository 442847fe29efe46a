//! Hashes of files and texts, as hexadecimal digits.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use tch::{Device, Tensor};
use xxhash_rust::xxh3::xxh3_64;

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a text.
pub fn text_sha256(text: &str) -> String {
    hex(Sha256::digest(text))
}

/// XXH3 (64 bits) of each row of a tensor `[K, …]` on the CPU, whose rows lie one after the other: fast, and against accidents
/// only.
pub fn of_rows(tensor: &Tensor) -> Vec<u64> {
    let rows = tensor.size().first().map_or(0, |rows| *rows as usize);
    let length = tensor.numel() * tensor.kind().elt_size_in_bytes();
    assert!(tensor.device() == Device::Cpu && tensor.is_contiguous(), "rows are hashed where they lie");
    if length == 0 {
        return vec![0; rows];
    }
    // SAFETY: the tensor is contiguous, lies on the CPU, and is borrowed until the bytes are hashed.
    let bytes = unsafe { std::slice::from_raw_parts(tensor.data_ptr() as *const u8, length) };
    bytes.chunks_exact(length / rows).map(xxh3_64).collect()
}

/// SHA-256 of a file's content. `key` is what named the file.
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
