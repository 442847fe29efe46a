//! A file that is written piece by piece beside its place, and takes it once it is whole.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::target::{Target, Temporary, folder_of, sync_folder};

/// A file that is being written. The old file stays until [`finish`](Self::finish); dropped before it, the new one is removed. A device, a
/// pipe or an open descriptor (`/dev/stdout`) is written to as it is.
pub struct NewFile {
    file: File,
    /// The path as the user gave it.
    shown: PathBuf,
    /// The file beside the place that it will take; `None` for what is written to as it is.
    beside: Option<(Temporary, PathBuf)>,
}

impl NewFile {
    /// Opens the file at `path`, whose folder must exist.
    ///
    /// # Errors
    /// Fails if it cannot be opened, or if something is there that bella does not write to.
    pub fn create(path: &Path) -> Result<NewFile> {
        NewFile::open(path).with_context(|| failed(path))
    }

    fn open(path: &Path) -> Result<NewFile> {
        let shown = path.to_path_buf();
        let place = match Target::of(path)? {
            Target::File(place) => place,
            stream => return Ok(NewFile { file: stream.open()?, shown, beside: None }),
        };
        let temporary = Temporary::beside(&place)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary.path)?;
        // Held until the file is closed, also by a kill: what is locked belongs to somebody. Where locks are not supported, age
        // tells.
        let _ = file.try_lock();
        Ok(NewFile { file, shown, beside: Some((temporary, place)) })
    }

    /// Returns another handle on the file, which writes behind what was written so far.
    ///
    /// # Errors
    /// Fails if the process may open no more files.
    pub fn writer(&self) -> Result<File> {
        self.file.try_clone().with_context(|| failed(&self.shown))
    }

    /// Puts the file in its place, once all that was written is on the disk.
    ///
    /// # Errors
    /// Fails if the disk does not take it, or if it cannot be renamed.
    pub fn finish(self) -> Result<()> {
        let put = |(temporary, place): &(Temporary, PathBuf)| -> Result<()> {
            self.file.sync_all()?;
            fs::rename(&temporary.path, place)?;
            sync_folder(folder_of(place))
        };
        self.beside.as_ref().map_or(Ok(()), put).with_context(|| failed(&self.shown))
    }
}

fn failed(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
