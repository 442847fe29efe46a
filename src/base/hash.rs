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

/// The start of a JSON object that carries a hash of its own text; the digits follow.
const SEAL: &str = "{\n  \"content_hash\": \"xxh3:";

/// The start of the first of JSON lines that carry a hash of their own text.
const LINE_SEAL: &str = "{\"content_hash\":\"xxh3:";

const NO_DIGITS: &str = "0000000000000000";

/// Returns the text of a JSON object, as serde writes it on several lines, with the XXH3 (64 bits) of the text as its
/// first entry `content_hash`. The text is hashed with zeros in place of the digits.
pub fn seal_json(text: &str) -> String {
    checksummed(SEAL, text.strip_prefix("{\n").unwrap_or("}"), ",\n")
}

/// Returns JSON lines with the hash of all of them as the first entry `content_hash` of the first line, which is an
/// object.
pub fn seal_lines(text: &str) -> String {
    checksummed(LINE_SEAL, text.strip_prefix('{').unwrap_or("}"), ",")
}

fn checksummed(seal: &str, rest: &str, between: &str) -> String {
    let zeros = format!("{seal}{NO_DIGITS}\"{between}{rest}");
    zeros.replacen(NO_DIGITS, &format!("{:016x}", xxh3_64(zeros.as_bytes())), 1)
}

/// Compares the text of a JSON object that bella wrote with the hash that it carries.
///
/// # Errors
/// Fails if the text has changed since it was written, or carries no hash. The message does not name the file.
pub fn check_json(text: &str) -> Result<()> {
    check_sealed(SEAL, text)
}

/// Compares JSON lines that bella wrote with the hash that the first of them carries.
///
/// # Errors
/// Fails as [`check_json`] does.
pub fn check_lines(text: &str) -> Result<()> {
    check_sealed(LINE_SEAL, text)
}

fn check_sealed(seal: &str, text: &str) -> Result<()> {
    let (stored, rest) = text
        .strip_prefix(seal)
        .and_then(|rest| rest.split_at_checked(NO_DIGITS.len()))
        .context("damaged: does not begin with the hash that it was written with")?;
    let found = format!("{:016x}", xxh3_64(format!("{seal}{NO_DIGITS}{rest}").as_bytes()));
    ensure!(
        found == stored,
        "changed since it was written: its text has the hash {found}, not {stored}: undo the change, or make the file again"
    );
    Ok(())
}

/// The start of the last line of a TOML file that carries a hash of the text above it; the digits follow.
const TOML_SEAL: &str = "# content_hash = xxh3:";

/// Returns the text of a TOML file with the XXH3 (64 bits) of the text in a last line, which is a comment.
pub fn seal_toml(text: &str) -> String {
    format!("{text}{TOML_SEAL}{:016x}\n", xxh3_64(text.as_bytes()))
}

/// Compares a TOML file that bella wrote with the hash in its last line.
///
/// # Errors
/// Fails if the text has changed since it was written, or carries no hash. The message does not name the file.
pub fn check_toml(text: &str) -> Result<()> {
    let (above, stored) = text
        .rsplit_once(TOML_SEAL)
        .context("damaged: does not end with the hash that it was written with: put the file back as it was")?;
    let (digits, behind) = stored.split_at_checked(NO_DIGITS.len()).unwrap_or((stored, ""));
    let found = format!("{:016x}", xxh3_64(above.as_bytes()));
    ensure!(
        found == digits,
        "changed since bella wrote it: its text has the hash {found}, not {}: undo the change",
        stored.lines().next().unwrap_or_default()
    );
    ensure!(behind == "\n", "changed since bella wrote it: the line of its hash is not the last one: undo the change");
    Ok(())
}

/// Compares a TOML file, which may be a user's own or one that bella wrote, with the hash in its last line if it has one.
///
/// # Errors
/// Fails if the text has changed since bella wrote it.
pub fn check_toml_of_anyone(text: &str) -> Result<()> {
    match text.contains(TOML_SEAL) {
        true => {
            check_toml(text).context("give a change by --set, or make it in a copy without the line `# content_hash`")
        }
        false => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "{\n  \"device\": \"cpu\",\n  \"steps\": 0\n}";

    #[test]
    fn every_flipped_bit_of_a_sealed_json_object_is_noticed() {
        let checksummed = seal_json(PLAIN);
        check_json(&checksummed).unwrap();
        assert!(check_json(PLAIN).is_err(), "a removed hash is not noticed");
        let value: serde_json::Value = serde_json::from_str(&checksummed).unwrap();
        assert_eq!((value["device"].as_str(), value["steps"].as_i64()), (Some("cpu"), Some(0)));
        for bit in 0..8 * checksummed.len() {
            let mut flipped = checksummed.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = String::from_utf8(flipped).map_err(anyhow::Error::from).and_then(|text| check_json(&text));
            assert!(read.is_err(), "bit {} of byte {} is not noticed", bit % 8, bit / 8);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_sealed_config_is_noticed() {
        let checksummed = seal_toml("seed = 1\n[method.map]\n");
        check_toml(&checksummed).unwrap();
        let plain = "seed = 1\n";
        assert!(check_toml(plain).is_err() && check_toml_of_anyone(plain).is_ok());
        assert!(check_toml_of_anyone(&checksummed.replace("seed = 1", "seed = 2")).is_err());
        for added in ["seed = 2\n", " "] {
            let why = check_toml(&format!("{checksummed}{added}")).unwrap_err().to_string();
            assert!(why.contains("the line of its hash is not the last one"), "{why}");
        }
        for bit in 0..8 * checksummed.len() {
            let mut flipped = checksummed.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = String::from_utf8(flipped).map_err(anyhow::Error::from).and_then(|text| check_toml(&text));
            assert!(read.is_err(), "bit {} of byte {} is not noticed", bit % 8, bit / 8);
        }
    }
}
