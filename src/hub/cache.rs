//! The cache of the Hub as its Python package lays it out: `models--org--name` or `datasets--org--name` with `refs/<revision>` (a commit),
//! `blobs/<hash>` (the files), `snapshots/<commit>/<file>` (relative links to them), `.no_exist/<commit>/<file>` (files
//! that a commit does not have), and locks in `.locks` beside it. `.names/<commit>` is bella's own: the names of all files of a commit of
//! a data set, by which the part of it that is here is told from the whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::name::{HubName, is_commit};
use crate::base::files::{read_text, remove_leftovers, write_atomic};

/// The folder with the names of all files of each commit.
const NAMES: &str = ".names";

/// The folder of a repository in the cache.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    locks: PathBuf,
}

impl Folder {
    pub fn of(cache: &Path, name: &HubName) -> Folder {
        let folder = format!("{}--{}", name.kind.word(), name.repository.replace('/', "--"));
        Folder { path: cache.join(&folder), locks: cache.join(".locks").join(folder) }
    }

    /// Returns the commit that a name means here; `None` if the cache does not know its branch or tag.
    pub fn commit(&self, name: &HubName) -> Option<String> {
        if let Some(commit) = name.commit() {
            return Some(commit.to_string());
        }
        let known = read_text(&self.path.join("refs").join(&name.revision)).ok()?;
        Some(known.trim().to_string()).filter(|text| is_commit(text))
    }

    /// Stores the commit that a branch or a tag means.
    pub fn set_commit(&self, name: &HubName, commit: &str) -> Result<()> {
        let path = self.path.join("refs").join(&name.revision);
        // What a killed process left here would count as a branch for Python's packages.
        path.parent().into_iter().for_each(remove_leftovers);
        if name.commit().is_some() || self.commit(name).as_deref() == Some(commit) {
            return Ok(());
        }
        create_beside(&path)?;
        write_atomic(&path, |file| Ok(file.write_all(commit.as_bytes())?))
    }

    /// Returns the folder with the files of a commit.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.path.join("snapshots").join(commit)
    }

    /// Returns the file of a content, which may not be there.
    pub fn blob(&self, hash: &str) -> PathBuf {
        self.path.join("blobs").join(hash)
    }

    /// Returns the file in which a content grows.
    pub fn part(&self, hash: &str) -> PathBuf {
        self.path.join("blobs").join(format!("{hash}.incomplete"))
    }

    /// Returns whether it is known of a file of a commit that it is here or nowhere.
    pub fn is_settled(&self, commit: &str, file: &str) -> bool {
        self.snapshot(commit).join(file).is_file() || self.path.join(".no_exist").join(commit).join(file).is_file()
    }

    /// Notes that a commit does not have a file. Where that cannot be written, the Hub is asked again.
    pub fn note_absence(&self, commit: &str, file: &str) {
        let path = self.path.join(".no_exist").join(commit).join(file);
        let noted = create_beside(&path).and_then(|()| Ok(File::create(&path).map(drop)?));
        if let Err(error) = noted {
            tracing::debug!("{}: {error:#}", path.display());
        }
    }

    /// Notes the names of all files of a commit, one a line. Where that cannot be written, they are not known without the Hub.
    pub fn note_names(&self, commit: &str, names: &[String]) {
        let path = self.path.join(NAMES).join(commit);
        if path.is_file() {
            return;
        }
        let text = names.join("\n");
        let noted =
            create_beside(&path).and_then(|()| write_atomic(&path, |file| Ok(file.write_all(text.as_bytes())?)));
        if let Err(error) = noted {
            tracing::debug!("{}: {error:#}", path.display());
        }
    }

    /// Returns the names that were noted; `None` if there are none.
    pub fn names(&self, commit: &str) -> Option<Vec<String>> {
        let text = read_text(&self.path.join(NAMES).join(commit)).ok()?;
        Some(text.lines().map(str::to_string).collect())
    }

    /// Gives a content, which is there, its name in a commit.
    pub fn link(&self, commit: &str, file: &str, hash: &str) -> Result<()> {
        let link = self.snapshot(commit).join(file);
        if link.is_file() {
            return Ok(());
        }
        create_beside(&link)?;
        // A link that leads nowhere, since somebody has removed what it led to.
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link).with_context(|| unwritable(&link))?;
        }
        let up = "../".repeat(2 + file.matches('/').count());
        match make_link(&self.blob(hash), &Path::new(&up).join("blobs").join(hash), &link) {
            // Another process was faster.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made.with_context(|| unwritable(&link)),
        }
    }

    /// Runs `action` while no other program that keeps to the locks of this cache writes a content.
    pub fn locked<T>(&self, hash: &str, shown: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        create_beside(&self.blob(hash))?;
        with_lock_of(&self.locks.join(format!("{hash}.lock")), shown, action)
    }
}

/// Runs `action` while holding the lock of a download, waiting for other processes and threads.
pub fn with_lock_of<T>(path: &Path, shown: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
    create_beside(path)?;
    let _held = loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let file = file.with_context(|| unwritable(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                tracing::info!("{shown}: another process downloads it; waiting");
                file.lock().with_context(|| unwritable(path))?;
            }
            Err(TryLockError::Error(error)) => {
                tracing::debug!("{}: no locks here: {error}", path.display());
                break file;
            }
        }
        // The Python package removes its lock files: then the lock is one of a file without a name.
        if is_same(&file, path) {
            break file;
        }
    };
    action()
}

#[cfg(unix)]
fn make_link(_: &Path, to: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, link)
}

#[cfg(not(unix))]
fn make_link(content: &Path, _: &Path, link: &Path) -> std::io::Result<()> {
    fs::copy(content, link).map(drop)
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |about: fs::Metadata| (about.dev(), about.ino());
    file.metadata().ok().map(of) == path.metadata().ok().map(of)
}

#[cfg(not(unix))]
fn is_same(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Creates the folder that a file will lie in.
///
/// # Errors
/// Fails with the way out if it cannot be created.
pub fn create_beside(file: &Path) -> Result<()> {
    let folder = file.parent().ok_or_else(|| anyhow!("{}: has no folder", file.display()))?;
    fs::create_dir_all(folder).with_context(|| unwritable(folder))
}

fn unwritable(path: &Path) -> String {
    format!("{}: cannot be written to: set HF_HOME to a folder of your own", path.display())
}
