//! The download of one file: continued where an earlier one ended, compared with its size and hash, and only then given
//! its name.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::ProgressBar;
use sha1::{Digest, Sha1};

use super::client::{Answer, Ask, Client};
use super::fault::{Fault, Ways};
use crate::base::files::{behind_links, sync_folder};
use crate::base::hash::{file_sha256, hex};

/// The content that a file must have.
#[derive(Clone, Debug, PartialEq)]
pub enum Hash {
    Sha256(String),
    /// The SHA-1 of git, which begins with the length.
    GitBlob(String),
}

impl Hash {
    /// Returns the hash that an ETag of the Hub is, which has no other form: `None` for what it never sends.
    pub fn of_etag(etag: &str) -> Option<Hash> {
        let digits = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
        let are_hex = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        match digits.len() {
            64 if are_hex => Some(Hash::Sha256(digits.to_string())),
            40 if are_hex => Some(Hash::GitBlob(digits.to_string())),
            _ => None,
        }
    }

    /// Returns the digits, by which the cache names the file.
    pub fn digits(&self) -> &str {
        let (Hash::Sha256(digits) | Hash::GitBlob(digits)) = self;
        digits
    }

    fn of_file(&self, path: &Path) -> Result<String> {
        if let Hash::Sha256(_) = self {
            return file_sha256(path, "the download");
        }
        let shown = || format!("{}: cannot read", path.display());
        let mut file = File::open(path).with_context(shown)?;
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", file.metadata().with_context(shown)?.len()));
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).with_context(shown)? {
                0 => return Ok(hex(hash.finalize())),
                count => hash.update(&buffer[..count]),
            }
        }
    }
}

/// A file to download.
#[derive(Clone, Debug)]
pub struct Download {
    pub url: String,
    pub size: u64,
    pub hash: Hash,
    /// The file in which it grows.
    pub part: PathBuf,
    /// The file that it becomes.
    pub target: PathBuf,
    pub ways: &'static Ways,
}

impl Download {
    /// Returns the number of bytes that are there from an earlier download.
    pub fn started(&self) -> u64 {
        self.part.symlink_metadata().map_or(0, |about| about.len())
    }

    /// Downloads the file. The caller holds its lock.
    ///
    /// # Errors
    /// Fails if it cannot be had, or if it is not what the server promised. What has come is kept for the next time, unless
    /// its content is wrong.
    pub fn run(&self, client: &Client, bar: &ProgressBar) -> Result<()> {
        let is_link = self.part.symlink_metadata().is_ok_and(|about| !about.is_file());
        ensure!(!is_link, "{}: is no regular file, and must be one to be written to: remove it", self.part.display());
        let mut continued = self.started() > 0;
        loop {
            client.persist(&self.url, || self.started(), || self.go_on(client, bar))?;
            let found = self.hash.of_file(&self.part)?;
            if found == self.hash.digits() {
                break;
            }
            bar.dec(self.started());
            self.remove_part();
            // The start may be what another program left there.
            ensure!(
                std::mem::take(&mut continued),
                "{}: what came has the hash {found}, not {}: it is not the published file and was removed: try again, or set \
                 {} to another mirror",
                self.url,
                self.hash.digits(),
                self.ways.mirror
            );
        }
        self.name_it().with_context(|| format!("cannot write {}", self.target.display()))
    }

    /// Receives what is missing, once.
    fn go_on(&self, client: &Client, bar: &ProgressBar) -> Result<(), Fault> {
        if self.started() > self.size {
            self.remove_part();
        }
        let from = self.started();
        if from == self.size && (from > 0 || self.part.is_file()) {
            return Ok(());
        }
        let answer = client.ask(&self.url, Ask::Content { from })?;
        let keeps = answer.status == 206 && starts_at(&answer, from);
        if from > 0 && !keeps {
            bar.dec(from);
            self.remove_part();
            if answer.status != 200 {
                return Err(Fault::Passing {
                    why: "sent another part of the file than was asked for".into(),
                    pause: None,
                });
            }
        }
        self.receive(answer, bar)
    }

    fn receive(&self, answer: Answer, bar: &ProgressBar) -> Result<(), Fault> {
        let lasting = |error: std::io::Error| Fault::Lasting(self.unwritten(error));
        let mut there = self.started();
        let coming = answer.header("content-length").and_then(|text| text.parse::<u64>().ok());
        if let Some(coming) = coming.filter(|coming| there + coming != self.size) {
            return Err(self.of_another_size(there + coming));
        }
        let mut part = OpenOptions::new().create(true).append(true).open(&self.part).map_err(lasting)?;
        let mut body = answer.body.into_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(Fault::Passing { why: format!("the transfer broke off ({error})"), pause: None });
                }
            };
            there += count as u64;
            if there > self.size {
                self.remove_part();
                return Err(self.of_another_size(there));
            }
            part.write_all(&buffer[..count]).map_err(lasting)?;
            bar.inc(count as u64);
        }
        if there < self.size {
            let why = format!("the transfer ended after {there} of {} bytes", self.size);
            return Err(Fault::Passing { why, pause: None });
        }
        part.sync_all().map_err(lasting)
    }

    fn of_another_size(&self, size: u64) -> Fault {
        Fault::Lasting(anyhow!(
            "{}: has {size} bytes, not the {} that were promised: it is not the published file: try again, or set {} to another \
             mirror",
            self.url,
            self.size,
            self.ways.mirror
        ))
    }

    fn unwritten(&self, error: std::io::Error) -> anyhow::Error {
        let folder = self.ways.folder;
        let way_out = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                format!("make room, or {folder} on a larger disk; what has come is kept")
            }
            _ => format!("{folder} that you may write to"),
        };
        anyhow!("{}: cannot write: {error}: {way_out}", self.part.display())
    }

    fn remove_part(&self) {
        if let Err(error) = fs::remove_file(&self.part) {
            tracing::debug!("{}: cannot remove: {error}", self.part.display());
        }
    }

    fn name_it(&self) -> Result<()> {
        fs::rename(&self.part, &self.target)?;
        match self.target.parent() {
            Some(folder) => sync_folder(folder),
            None => Ok(()),
        }
    }
}

/// Returns whether a part of a file is the one from byte `from` on.
fn starts_at(answer: &Answer, from: u64) -> bool {
    let range = answer.header("content-range").and_then(|range| range.strip_prefix("bytes "));
    range.and_then(|range| range.split('-').next()).and_then(|start| start.parse().ok()) == Some(from)
}

/// Checks that the files that are still to come fit on the disk, with `beside` bytes that are unpacked beside them.
///
/// # Errors
/// Fails with what is missing if they do not.
pub fn check_space(folder: &Path, downloads: &[Download], beside: u64, name: &str) -> Result<()> {
    let Some(ways) = downloads.first().map(|one| one.ways) else { return Ok(()) };
    let coming: u64 = downloads.iter().map(|one| one.size.saturating_sub(one.started())).sum();
    let place = behind_links(folder).unwrap_or_else(|_| folder.to_path_buf());
    // Where the system does not tell, writing will.
    let Ok(free) = fs4::available_space(&place) else { return Ok(()) };
    if coming.saturating_add(beside) > free {
        let unpacked = if beside > 0 { format!(" and {} to be unpacked", megabytes(beside)) } else { String::new() };
        bail!(
            "{name}: {} are still to come{unpacked}, and {} has room for {}: make room, or {} on a larger disk",
            megabytes(coming),
            folder.display(),
            megabytes(free),
            ways.folder
        );
    }
    Ok(())
}

/// Returns a number of bytes for messages: in megabytes unless it is small.
pub fn megabytes(bytes: u64) -> String {
    if bytes < 100_000 { format!("{bytes} bytes") } else { format!("{:.1} MB", bytes as f64 / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git_and_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "hello\n").unwrap();
        // git hash-object and sha256sum of a file with `hello` and a line end.
        let git = Hash::of_etag("\"ce013625030ba8dba906f756967f9e9ca394464a\"").unwrap();
        let sha = Hash::of_etag("W/\"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\"").unwrap();
        assert_eq!(git.of_file(&file).unwrap(), git.digits());
        assert_eq!(sha.of_file(&file).unwrap(), sha.digits());
        for other in [
            "",
            "\"5d41402abc4b2a76b9719d911017c592\"",
            "../../../../etc/passwd",
            "\"CE013625030ba8dba906f756967f9e9ca394464a\"",
        ] {
            assert_eq!(Hash::of_etag(other), None, "{other}");
        }
    }
}
