//! Writes files so that a crash, a full disk or a second process never destroys an existing one: atomic replacement,
//! advisory locks, and a check that output folders are writable before work starts.

mod target;
mod whole;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use target::Target;
pub use target::behind_links;
pub use target::{Staging, remove_leftovers, sync_folder};
use target::{Temporary, folder_of};
pub use whole::NewFile;

/// Returns the largest number of bytes that so many packed ones may become in memory: neither weights nor images become sixteen times smaller
/// by packing, and a few bytes may become any.
pub const fn most_unpacked(packed: u64) -> u64 {
    const RATIO: u64 = 16;
    const ALWAYS: u64 = 16 << 20;
    let most = packed.saturating_mul(RATIO);
    if most > ALWAYS { most } else { ALWAYS }
}

/// The folder that archives made by macOS leave beside the others.
pub const OF_MACOS: &str = "__MACOSX";

/// Replaces the file at `path` with the output of `write`, or leaves it unchanged.
///
/// The bytes go to a temporary file in the same folder, which is flushed, synced and renamed over the file; then the
/// folder is synced. On any failure (disk full, an error or panic of `write`) the temporary file is removed, the old
/// file stays, and the error names `path`. The folder must exist. Links stay: the file that they lead to is replaced. A
/// device, a pipe or an open descriptor (`/dev/stdout`) is written to as it is.
pub fn write_atomic(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let file = NewFile::create(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file.writer()?);
    let written = write(&mut writer).and_then(|()| Ok(writer.flush()?));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    file.finish()
}

/// Runs `action` while holding an exclusive lock on `<path>.lock`, waiting for other processes and threads. All links to
/// one file have the same lock.
///
/// The lock file is kept on purpose: removing it would let two waiting processes lock two different files.
pub fn with_lock<T>(path: &Path, action: impl FnOnce() -> Result<T>) -> Result<T> {
    let target = match Target::of(path) {
        Ok(Target::File(file)) => file,
        _ => path.to_path_buf(),
    };
    let mut name = target.as_os_str().to_owned();
    name.push(".lock");
    let lock_path = PathBuf::from(name);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
    let lock = lock.with_context(|| format!("cannot open the lock file {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}: does its file system support locks?", lock_path.display()))?;
    action() // Closing the file releases the lock, even if `action` panics or the process is killed.
}

/// Returns whether something has this name, also where it cannot be read: a link that leads nowhere, or no file. A file that
/// may be missing is left out only if its name is free.
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
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

/// Returns the content of a text file, without the byte order mark that some programs put in front of it.
///
/// # Errors
/// Fails as [`read_file`] does, or if the text is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let text = io::read_to_string(open_file(path)?)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
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

/// Creates `path` and its parents, removes what killed processes left in it, and checks that files can be written there.
pub fn create_folder(path: &Path) -> Result<()> {
    let rule = || format!("output folder {}: must be a folder that can be created and written to", path.display());
    fs::create_dir_all(path).with_context(rule)?;
    remove_leftovers(path);
    let probe = Temporary::beside(&path.join("write-check")).with_context(rule)?;
    File::create(&probe.path).map(drop).with_context(rule)
}

/// Checks that `path` can be written, so that a wrong path fails before the work and not after it, and removes what killed
/// processes left beside it.
pub fn expect_writable(path: &Path) -> Result<()> {
    let rule = || {
        format!("cannot write {}: must be a file name in a folder that exists and can be written to", path.display())
    };
    match Target::of(path).with_context(|| format!("cannot write {}", path.display()))? {
        Target::File(path) => {
            remove_leftovers(folder_of(&path));
            let probe = Temporary::beside(&path).with_context(rule)?;
            File::create(&probe.path).map(drop).with_context(rule)
        }
        // Opening a pipe would wait for its reader.
        Target::Pipe(_) => Ok(()),
        stream => stream.open().map(drop).with_context(rule),
    }
}

/// Returns the entries of a folder in the order of their names, without hidden (temporary) ones.
///
/// # Errors
/// Fails if the folder cannot be listed.
pub fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = vec![];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Writes a file and creates the folders that contain it.
///
/// # Errors
/// Fails if the file or a folder cannot be written.
pub fn put(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(failed)?;
    std::fs::write(path, bytes).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;
    use std::thread;
    use std::time::{Duration, SystemTime};

    use anyhow::bail;

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
    fn a_new_file_takes_its_place_once_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(&path, "old").unwrap();
        let begun = NewFile::create(&path).unwrap();
        begun.writer().unwrap().write_all(b"half").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("old", 2));
        drop(begun);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("old", 1));
        let whole = NewFile::create(&path).unwrap();
        ["wh", "ole"].iter().for_each(|part| whole.writer().unwrap().write_all(part.as_bytes()).unwrap());
        whole.finish().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("whole", 1));
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
    fn folders_that_killed_processes_left_are_removed_and_those_in_use_stay() {
        let place = tempfile::tempdir().unwrap();
        let aged = |path: &Path| File::open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(5));
        let left = place.path().join(".out.1-2-3.tmp");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("half"), "").unwrap();
        let used = Staging::beside(&place.path().join("out")).unwrap();
        [&left, used.path()].iter().for_each(|path| aged(path).unwrap());
        remove_leftovers(place.path());
        assert!(used.path().is_dir() && !left.exists());
        used.put(&place.path().join("out")).unwrap();
        assert_eq!(names(place.path()), ["out"]);
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_folder_that_is_replaced_is_there_at_any_time() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("out");
        fs::create_dir(&target).unwrap();
        std::thread::scope(|scope| {
            let replaced =
                scope.spawn(|| (0..100).for_each(|_| Staging::beside(&target).unwrap().replace(&target).unwrap()));
            while !replaced.is_finished() {
                assert!(target.is_dir(), "a process that was killed now would have left no folder");
            }
        });
        assert_eq!(names(place.path()), ["out"]);
    }

    #[test]
    fn a_folder_that_cannot_be_replaced_has_its_name_again() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("out");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("old"), "").unwrap();
        let gone = Staging::beside(&target).unwrap();
        fs::remove_dir(gone.path()).unwrap();
        assert!(gone.replace(&target).is_err());
        assert_eq!(names(&target), ["old"]);
        let new = Staging::beside(&target).unwrap();
        fs::write(new.path().join("new"), "").unwrap();
        new.replace(&target).unwrap();
        assert_eq!((names(&target), names(place.path())), (vec!["new".to_string()], vec!["out".to_string()]));
    }

    #[test]
    fn links_stay_and_the_file_behind_them_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let [file, link, second] = ["a/file", "link", "second"].map(|name| place.path().join(name));
        fs::create_dir(place.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a/file", &link).unwrap();
        std::os::unix::fs::symlink(&link, &second).unwrap();
        for text in ["new", "newer"] {
            expect_writable(&second).unwrap();
            write_atomic(&second, |writer| Ok(writer.write_all(text.as_bytes())?)).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert!(fs::symlink_metadata(&second).unwrap().is_symlink());
        }
        with_lock(&second, || Ok(())).unwrap();
        assert!(place.path().join("a/file.lock").is_file());
        std::os::unix::fs::symlink("ring", place.path().join("ring")).unwrap();
        let ring = format!("{:#}", write_atomic(&place.path().join("ring"), |_| Ok(())).unwrap_err());
        assert!(ring.contains("ring: its links lead in a circle"), "{ring}");
    }

    #[test]
    fn devices_and_pipes_are_written_to_and_stay_what_they_are() {
        use std::os::unix::fs::FileTypeExt;
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let put = |path: &Path| write_atomic(path, |writer| Ok(writer.write_all(b"text")?));
        put(&link).unwrap();
        assert!(fs::metadata(&link).unwrap().file_type().is_char_device());
        if Path::new("/dev/full").exists() {
            // Through a link, so that a fault of this program could not replace the machine's own device.
            let full = place.path().join("full");
            std::os::unix::fs::symlink("/dev/full", &full).unwrap();
            expect_writable(&full).unwrap();
            let said = format!("{:#}", put(&full).unwrap_err());
            assert!(said.contains("full: No space left on device"), "{said}");
            assert!(fs::metadata(&full).unwrap().file_type().is_char_device());
        }
        let pipe = place.path().join("pipe");
        assert!(process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        expect_writable(&pipe).unwrap();
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        put(&pipe).unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        let folder = format!("{:#}", put(place.path()).unwrap_err());
        assert!(folder.ends_with("it is a folder: give a file in it"), "{folder}");
        let _socket = std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
        let socket = format!("{:#}", expect_writable(&place.path().join("socket")).unwrap_err());
        assert!(socket.contains("is neither a regular file, nor a pipe, nor a character device"), "{socket}");
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
        fs::write(&path, "\u{feff}text").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text");
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
