//! What lies at a path that is to be written: a file that can be replaced, or a device, a pipe or an open descriptor, which
//! can only be written to.
//!
//! Temporary files and folders lie beside those that they will replace. Each is locked by the process that writes it, so that
//! the next one can tell which are abandoned.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, process};

use anyhow::{Context, Result, bail};

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

/// A temporary file may not be locked yet until it is this old.
const YOUNG: Duration = Duration::from_secs(1);

/// Age after which a temporary file counts as abandoned where locks are not supported.
const OLD: Duration = Duration::from_secs(600);

/// The path of a temporary file or folder, which is removed on drop. After a successful rename there is nothing to remove.
pub struct Temporary {
    pub path: PathBuf,
}

impl Temporary {
    /// Returns the path `.<name>.<pid>-<time>-<count>.tmp` in the folder of `path`. The count distinguishes threads of
    /// one process.
    pub fn beside(path: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = path.file_name() else { bail!("the path ends in no file name") };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // The time distinguishes processes with the same id, as in containers.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let name = format!(".{}.{}-{now:x}-{count}.tmp", name.to_string_lossy(), process::id());
        Ok(Self { path: folder_of(path).join(name) })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if fs::remove_file(&self.path).is_err() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// An empty folder beside the one whose place it will take, which is removed on drop unless it was put there.
pub struct Staging {
    temporary: Temporary,
    /// Held while the folder is filled. A folder cannot be locked on every file system; age tells there.
    _lock: Option<File>,
}

impl Staging {
    /// Creates the folder, and removes those that killed processes left beside it.
    ///
    /// # Errors
    /// Fails if the folder of `target` cannot be written to.
    pub fn beside(target: &Path) -> Result<Staging> {
        remove_leftovers(folder_of(target));
        let temporary = Temporary::beside(target)?;
        fs::create_dir(&temporary.path)?;
        let lock = File::open(&temporary.path).ok().filter(|folder| folder.try_lock().is_ok());
        Ok(Staging { temporary, _lock: lock })
    }

    pub fn path(&self) -> &PathBuf {
        &self.temporary.path
    }

    /// Renames the folder to `target`, which must not exist or be an empty folder.
    ///
    /// # Errors
    /// Fails if it cannot be renamed.
    pub fn put(self, target: &Path) -> Result<()> {
        fs::rename(self.path(), target)?;
        sync_folder(folder_of(target))
    }

    /// Renames the folder to `target` in place of the folder that is there, which goes when the new one has its name. Where the file system can
    /// exchange two names, there is a folder of this name at any time.
    ///
    /// # Errors
    /// Fails if one of them cannot be renamed. The folder that was there has its name then.
    pub fn replace(self, target: &Path) -> Result<()> {
        if exchange(self.path(), target).is_ok() {
            return sync_folder(folder_of(target));
        }
        let former = Temporary::beside(target)?;
        fs::rename(target, &former.path)?;
        if let Err(error) = fs::rename(self.path(), target) {
            fs::rename(&former.path, target)?;
            bail!(error);
        }
        sync_folder(folder_of(target))
    }
}

/// Exchanges the names of two files or folders in one step.
///
/// # Errors
/// Fails if this system or the file system of the two cannot do it. Both have their names then.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn exchange(one: &Path, other: &Path) -> Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let [one, other] = [one, other].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (one, other) = (one?, other?);
    // SAFETY: the call reads two texts that end with a zero.
    match unsafe {
        libc::renameat2(libc::AT_FDCWD, one.as_ptr(), libc::AT_FDCWD, other.as_ptr(), libc::RENAME_EXCHANGE)
    } {
        0 => Ok(()),
        _ => bail!(std::io::Error::last_os_error()),
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn exchange(_one: &Path, _other: &Path) -> Result<()> {
    bail!("this system cannot exchange two names")
}

/// Removes temporary files and folders in `folder` of processes that were killed while they wrote.
pub fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_temporary(&name) && is_leftover(&entry) {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            tracing::debug!("{}: left by a process that was killed; removed: {removed:?}", path.display());
        }
    }
}

/// Returns whether a name has the form `.<name>.<pid>-<time>-<count>.tmp` of [`Temporary::beside`]. Other programs'
/// files must stay.
fn is_temporary(name: &str) -> bool {
    let numbers =
        name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp")).and_then(|name| name.rsplit_once('.'));
    let Some((_, numbers)) = numbers else { return false };
    let [pid, time, count] = numbers.split('-').collect::<Vec<_>>()[..] else { return false };
    let is_number = |text: &str, base: u32| !text.is_empty() && text.chars().all(|digit| digit.is_digit(base));
    is_number(pid, 10) && is_number(time, 16) && is_number(count, 10)
}

/// Returns whether no process writes a temporary file or folder any more: its lock is free, or it is old where locks are
/// not supported.
fn is_leftover(entry: &fs::DirEntry) -> bool {
    let path = entry.path();
    let Ok(kind) = entry.file_type() else { return false };
    let Some(age) = age(&path) else { return false };
    // A file has no owner between its creation and its lock.
    if age < YOUNG {
        return false;
    }
    let opened = match kind.is_dir() {
        true => File::open(&path),
        false => OpenOptions::new().write(true).open(&path),
    };
    match opened.map(|file| file.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock)) => false,
        Ok(Err(TryLockError::Error(_))) | Err(_) => youngest(&path).is_none_or(|age| age > OLD),
    }
}

/// Returns the time since a file or folder was changed.
fn age(path: &Path) -> Option<Duration> {
    fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok()?.elapsed().ok()
}

/// Returns the time since the last change of a file, or of a folder and what is directly in it.
fn youngest(path: &Path) -> Option<Duration> {
    let inner = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(path.to_path_buf()).chain(inner).filter_map(|path| age(&path)).min()
}

/// Returns the folder that holds `path`; `.` for a bare file name.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a rename inside `folder` survive a power failure. Only Unix can open a folder as a file.
pub fn sync_folder(folder: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).context("cannot sync the folder")?;
    }
    Ok(())
}
