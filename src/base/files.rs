//! Writes files so that a crash, a full disk or a second process never destroys an existing one: atomic replacement,
//! advisory locks, and a check that output folders are writable before work starts.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

/// A temporary file may not be locked yet until it is this old.
const YOUNG: Duration = Duration::from_secs(1);

/// Age after which a temporary file counts as abandoned where locks are not supported.
const OLD: Duration = Duration::from_secs(600);

/// Replaces `path` with the output of `write`, or leaves it unchanged.
///
/// The bytes go to a temporary file in the same folder, which is flushed, synced and renamed over `path`; then the
/// folder is synced. On any failure (disk full, an error or panic of `write`) the temporary file is removed, the old
/// file stays, and the error names `path`. The folder must exist.
pub fn write_atomic(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    replace(path, write).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let folder = folder_of(path);
    let temporary = Temporary::beside(path)?;
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary.path)?;
    // Held until the file is closed, also by a kill: what is locked belongs to somebody. Where locks are not supported, age
    // tells.
    let _ = file.try_lock();
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    write(&mut writer)?;
    writer.flush()?;
    writer.get_ref().sync_all()?;
    fs::rename(&temporary.path, path)?;
    drop(writer);
    sync_folder(folder)
}

/// Runs `action` while holding an exclusive lock on `<path>.lock`, waiting for other processes and threads.
///
/// The lock file is kept on purpose: removing it would let two waiting processes lock two different files.
pub fn with_lock<T>(path: &Path, action: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock_path = PathBuf::from(name);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
    let lock = lock.with_context(|| format!("cannot open the lock file {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}: does its file system support locks?", lock_path.display()))?;
    action() // Closing the file releases the lock, even if `action` panics or the process is killed.
}

/// Opens a file for reading.
///
/// # Errors
/// Fails if the file cannot be opened, or if it is a folder, a pipe or a device, which may have no end.
pub fn open_file(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file, but a folder, a pipe or a device"));
    }
    File::open(path)
}

/// Returns the content of a file.
///
/// # Errors
/// Fails as [`open_file`] does, or if the file cannot be read.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the content of a text file.
///
/// # Errors
/// Fails as [`read_file`] does, or if the text is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(open_file(path)?)
}

/// Returns the content of a JSON file.
///
/// # Errors
/// Fails as [`read_text`] does, or if the text is no JSON. The message names the file.
pub fn read_json(path: &Path) -> Result<serde_json::Value> {
    let shown = path.display();
    let text = read_text(path).with_context(|| format!("{shown}: cannot read"))?;
    serde_json::from_str(&text).with_context(|| format!("{shown}: no JSON"))
}

/// Removes temporary files in `folder` of processes that were killed while they wrote.
pub fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_temporary(&name) && is_leftover(&entry) {
            let removed = fs::remove_file(entry.path());
            tracing::debug!("{}: left by a process that was killed; removed: {removed:?}", entry.path().display());
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

/// Returns whether no process writes a temporary file any more: its lock is free, or the file is old where locks are
/// not supported.
fn is_leftover(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|meta| meta.modified());
    let Some(age) = modified.ok().and_then(|time| time.elapsed().ok()) else { return false };
    // A file has no owner between its creation and its lock.
    if age < YOUNG {
        return false;
    }
    match OpenOptions::new().write(true).open(entry.path()).map(|file| file.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock)) => false,
        Ok(Err(TryLockError::Error(_))) | Err(_) => age > OLD,
    }
}

/// Creates `path` and its parents, removes what killed processes left in it, and checks that files can be written there.
pub fn create_folder(path: &Path) -> Result<()> {
    let rule = || format!("output folder {}: must be a folder that can be created and written to", path.display());
    fs::create_dir_all(path).with_context(rule)?;
    remove_leftovers(path);
    let probe = Temporary::beside(&path.join("write-check")).with_context(rule)?;
    File::create(&probe.path).map(drop).with_context(rule)
}

/// Checks that `path` can be written, so that a wrong path fails before the work and not after it.
pub fn expect_writable(path: &Path) -> Result<()> {
    let rule = || {
        format!("cannot write {}: must be a file name in a folder that exists and can be written to", path.display())
    };
    let probe = Temporary::beside(path).with_context(rule)?;
    File::create(&probe.path).map(drop).with_context(rule)
}

/// The path of a temporary file, which is removed on drop. After a successful rename there is nothing to remove.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Returns the path `.<name>.<pid>-<time>-<count>.tmp` in the folder of `path`. The count distinguishes threads of
    /// one process.
    fn beside(path: &Path) -> Result<Self> {
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
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the folder that holds `path`; `.` for a bare file name.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a rename inside `folder` survive a power failure. Only Unix can open a folder as a file.
fn sync_folder(folder: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn replaces_the_file_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        for text in ["old", "new"] {
            write_atomic(&path, |writer| Ok(writer.write_all(text.as_bytes())?)).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), ["a.csv"]);
    }

    #[test]
    fn failure_and_panic_keep_the_old_file_and_remove_the_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(&path, "old").unwrap();
        let error = write_atomic(&path, |writer| {
            writer.write_all(&vec![b'x'; 3 << 20])?;
            bail!("No space left on device")
        });
        let text = format!("{:#}", error.unwrap_err());
        assert!(text.contains("a.csv") && text.contains("No space left"), "{text}");
        let panicked =
            thread::scope(|scope| scope.spawn(|| write_atomic(&path, |_| panic!("inside a write"))).join().is_err());
        assert!(panicked);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["a.csv"]);
    }

    #[test]
    fn a_temporary_file_of_a_dead_process_is_removed_and_one_that_is_being_written_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let aged = |file: &File| file.set_modified(SystemTime::now() - Duration::from_secs(5)).unwrap();
        aged(&File::create(folder.path().join(".a.csv.1-2-3.tmp")).unwrap());
        File::create(folder.path().join(".young.csv.1-2-3.tmp")).unwrap();
        aged(&File::create(folder.path().join("b.tmp")).unwrap());
        aged(&File::create(folder.path().join(".foreign.tmp")).unwrap());
        aged(&File::create(folder.path().join(".foreign.notes-1.tmp")).unwrap());
        write_atomic(&folder.path().join("c.csv"), |writer| {
            aged(writer.get_ref());
            create_folder(folder.path())?;
            Ok(writer.write_all(b"c")?)
        })
        .unwrap();
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [".foreign.notes-1.tmp", ".foreign.tmp", ".young.csv.1-2-3.tmp", "b.tmp", "c.csv"]);
    }

    #[test]
    fn missing_folder_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/a.csv");
        let text = format!("{:#}", write_atomic(&path, |_| Ok(())).unwrap_err());
        assert!(text.contains("none/a.csv"), "{text}");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused_beforehand() {
        let folder = tempfile::tempdir().unwrap();
        expect_writable(&folder.path().join("a.png")).unwrap();
        assert!(names(folder.path()).is_empty());
        let text = format!("{:#}", expect_writable(&folder.path().join("none/a.png")).unwrap_err());
        assert!(text.contains("none/a.png: must be a file name in a folder that exists"), "{text}");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "text").unwrap();
        assert_eq!((read_file(&path).unwrap(), read_text(&path).unwrap()), (b"text".to_vec(), "text".to_string()));
        let pipe = folder.path().join("pipe");
        assert!(process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for other in [&pipe, folder.path(), Path::new("/dev/zero")] {
            assert!(read_file(other).unwrap_err().to_string().contains("no regular file"), "{}", other.display());
        }
        assert_eq!(read_file(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn lock_excludes_other_holders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("count");
        fs::write(&path, "0").unwrap();
        let add_one = || {
            let count: u32 = fs::read_to_string(&path)?.parse()?;
            thread::yield_now();
            Ok(fs::write(&path, (count + 1).to_string())?)
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| with_lock(&path, add_one).unwrap()));
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "200");
    }

    #[test]
    fn folder_is_created_with_parents_or_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        create_folder(&deep).unwrap();
        create_folder(&deep).unwrap();
        assert!(names(&deep).is_empty());
        fs::write(folder.path().join("file"), "").unwrap();
        let text = format!("{:#}", create_folder(&folder.path().join("file/sub")).unwrap_err());
        assert!(text.contains("file/sub"), "{text}");
    }
}
