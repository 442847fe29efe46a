//! What lies at a path that is to be written: a file that can be replaced, or a device, a pipe or an open descriptor, which
//! can only be written to.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::temporary::folder_of;

/// The most links that lead to a file.
const MOST_LINKS: usize = 40;

/// The thing at a path, behind all links.
pub enum Target {
    /// A regular file, or a name that is free.
    File(PathBuf),
    Pipe(PathBuf),
    Device(PathBuf),
    /// A descriptor of this process, such as 1 behind `/dev/stdout`.
    Descriptor(i32),
}

impl Target {
    /// Looks at what a path leads to.
    ///
    /// # Errors
    /// Fails if the links lead in a circle, or to something that bella does not write to.
    pub fn of(path: &Path) -> Result<Target> {
        let at = behind_links(path)?;
        if let Some(number) = descriptor(&at) {
            return Ok(Target::Descriptor(number));
        }
        match fs::symlink_metadata(&at) {
            Ok(found) => Target::found(at, &found),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Target::File(at)),
            Err(error) => Err(error.into()),
        }
    }

    fn found(at: PathBuf, found: &fs::Metadata) -> Result<Target> {
        if found.is_file() {
            return Ok(Target::File(at));
        }
        if found.is_dir() {
            bail!("it is a folder: give a file in it");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt;
            if found.file_type().is_fifo() {
                return Ok(Target::Pipe(at));
            }
            if found.file_type().is_char_device() {
                return Ok(Target::Device(at));
            }
        }
        bail!("it is neither a regular file, nor a pipe, nor a character device: give another name")
    }

    /// Opens it for writing. A pipe waits for its reader.
    pub fn open(&self) -> Result<File> {
        match self {
            Target::File(path) | Target::Pipe(path) | Target::Device(path) => {
                Ok(OpenOptions::new().write(true).open(path)?)
            }
            Target::Descriptor(number) => duplicate(*number),
        }
    }
}

/// Returns the path behind all links of a path, which may not exist, or the first one that names a descriptor of this process.
///
/// # Errors
/// Fails if the links lead in a circle.
pub fn behind_links(path: &Path) -> Result<PathBuf> {
    let mut at = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match fs::symlink_metadata(&at) {
            _ if descriptor(&at).is_some() => return Ok(at),
            Ok(found) if found.is_symlink() => at = folder_of(&at).join(fs::read_link(&at)?),
            Ok(_) => return Ok(at),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(at),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("its links lead in a circle, or more than {MOST_LINKS} follow each other")
}

/// Returns the number of the descriptor of this process that a path names. `/proc/self/fd/1` is a link to a file or to a
/// name that does not exist (`pipe:[4711]`), and replacing that file would take it from whoever opened it.
fn descriptor(path: &Path) -> Option<i32> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let folder = folder_of(path);
    let own =
        |known: &str| fs::canonicalize(known).is_ok_and(|known| fs::canonicalize(folder).is_ok_and(|at| at == known));
    (own("/proc/self/fd") || own("/dev/fd")).then_some(number)
}

#[cfg(unix)]
fn duplicate(number: i32) -> Result<File> {
    use std::os::fd::BorrowedFd;
    if number < 0 {
        bail!("there is no descriptor {number}");
    }
    // SAFETY: the number is not -1. If it is not open, duplicating it is an error.
    let own = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()?;
    Ok(File::from(own))
}

#[cfg(not(unix))]
fn duplicate(number: i32) -> Result<File> {
    bail!("descriptor {number} cannot be written to on this system")
}
