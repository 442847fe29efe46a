//! Files mapped into memory. Where another program makes such a file shorter, or its disk fails, the system answers the next
//! access with the signal SIGBUS. It then ends this process with one line that names the file, as any other file that
//! cannot be read does, and mapped files keep costing no memory and no copy. The rest of the page in which the file now ends
//! reads as zeros without a signal; [`Mapped::expect_whole`] notices that after the use.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use memmap2::Mmap;

/// A file mapped for reading.
#[derive(Debug)]
pub struct Mapped {
    map: Mmap,
    file: File,
    path: PathBuf,
    _watched: Watched,
}

impl Mapped {
    /// Maps an open file. `path` is the name by which messages call it.
    ///
    /// # Errors
    /// Fails if the file cannot be mapped.
    pub fn new(file: &File, path: &Path) -> io::Result<Mapped> {
        // SAFETY: the map is read-only, and bella replaces such files by rename, never in place. Other programs that make the
        // file shorter end this process, see above; what they change in it is found by its hash when it is opened.
        let map = unsafe { Mmap::map(file) }?;
        let watched = Watched::new(map.as_ptr() as usize, map.len(), path);
        Ok(Mapped { map, file: file.try_clone()?, path: path.to_path_buf(), _watched: watched })
    }

    /// Checks that all bytes that were read so far were those of the file.
    ///
    /// # Errors
    /// Fails if the file has become shorter since it was mapped.
    pub fn expect_whole(&self) -> Result<()> {
        if self.file.metadata().is_ok_and(|found| found.len() >= self.map.len() as u64) {
            return Ok(());
        }
        bail!("{}", cut_off(&self.path))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// The message about a file that became shorter while it was mapped.
fn cut_off(path: &Path) -> String {
    format!(
        "{}: cannot be read any more: another program has made it shorter, or its disk has failed: restore it from a copy, or \
         make it again",
        path.display().to_string().escape_debug()
    )
}

/// A range of addresses that a file is mapped to, until it is dropped.
#[derive(Debug)]
pub struct Watched {
    _entry: imp::Entry,
}

impl Watched {
    /// Makes an access to memory from `start` that the file at `path` no longer backs an error that names it.
    pub fn new(start: usize, bytes: usize, path: &Path) -> Watched {
        Watched { _entry: imp::Entry::new(start..start + bytes, path) }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod imp {
    use std::mem::MaybeUninit;
    use std::ops::Range;
    use std::path::Path;
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
    use std::sync::{Mutex, Once, PoisonError};

    /// An entry of the list that the handler reads. Entries are never freed, but taken again.
    struct Node {
        /// The addresses; an empty range is no mapping.
        start: AtomicUsize,
        end: AtomicUsize,
        message: AtomicPtr<String>,
        next: *const Node,
    }

    // SAFETY: `next` never changes once the node is in the list, and all else is atomic.
    unsafe impl Sync for Node {}

    static FIRST: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
    static FREE: Mutex<Vec<&'static Node>> = Mutex::new(Vec::new());
    static INSTALLED: Once = Once::new();
    /// The action before this one, which has all other addresses: that of Rust's runtime.
    static mut EARLIER: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

    pub struct Entry(&'static Node);

    impl std::fmt::Debug for Entry {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Entry")
        }
    }

    impl Entry {
        pub fn new(range: Range<usize>, path: &Path) -> Entry {
            INSTALLED.call_once(install);
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let node = free.pop().unwrap_or_else(|| {
                let [start, end] = [const { AtomicUsize::new(0) }; 2];
                let next = FIRST.load(Ordering::Acquire);
                let node = Box::leak(Box::new(Node { start, end, message: AtomicPtr::new(ptr::null_mut()), next }));
                FIRST.store(node, Ordering::Release);
                node
            });
            let message = format!("error: {}\n", super::cut_off(path));
            // The text stays forever, since the handler could read it at any time.
            node.message.store(Box::leak(Box::new(message)), Ordering::Release);
            node.end.store(range.end, Ordering::Release);
            node.start.store(range.start, Ordering::Release);
            Entry(node)
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            self.0.end.store(0, Ordering::Release);
            self.0.start.store(0, Ordering::Release);
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }

    fn install() {
        // SAFETY: zeros are a valid action, the handler calls only what a handler may, and `EARLIER` is written once, before
        // the handler can run.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            // On the stack of the thread, which is whole; the one for signals has a few KiB only.
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, ptr::null(), (&raw mut EARLIER).cast());
            libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        }
    }

    extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system hands over a valid `info`; writing, leaving and setting actions are allowed in a handler.
        unsafe {
            let by_access = (*info).si_code > 0;
            if let Some(message) = found((*info).si_addr() as usize).filter(|_| by_access) {
                // A progress bar may stand in the line.
                let start: &[u8] = if libc::isatty(2) == 1 { b"\r\x1b[K" } else { b"" };
                libc::write(2, start.as_ptr().cast(), start.len());
                libc::write(2, message.as_ptr().cast(), message.len());
                libc::_exit(1);
            }
            // The access happens again and meets the earlier action.
            libc::sigaction(libc::SIGBUS, (&raw const EARLIER).cast(), ptr::null_mut());
            if !by_access {
                libc::raise(signal);
            }
        }
    }

    fn found(address: usize) -> Option<&'static String> {
        let mut at: *const Node = FIRST.load(Ordering::Acquire);
        // SAFETY: nodes and messages are never freed.
        while let Some(node) = unsafe { at.as_ref() } {
            let range = node.start.load(Ordering::Acquire)..node.end.load(Ordering::Acquire);
            if range.contains(&address) {
                return unsafe { node.message.load(Ordering::Acquire).as_ref() };
            }
            at = node.next;
        }
        None
    }
}

/// Nothing is watched on other systems: there the signal ends the process without a line.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod imp {
    #[derive(Debug)]
    pub struct Entry;

    impl Entry {
        pub fn new(_: std::ops::Range<usize>, _: &std::path::Path) -> Entry {
            Entry
        }
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const FILE: &str = "BELLA_TEST_MAPPED";

    /// Reads a mapped file after it was cut off, in a process of its own.
    #[test]
    #[ignore = "ends its process; started by the test below"]
    fn reads_what_is_gone() {
        let path = std::path::PathBuf::from(std::env::var(FILE).unwrap());
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let before = Mapped::new(&file, Path::new("another")).unwrap();
        let kept = Mapped::new(&file, &path).unwrap();
        drop(before);
        assert_eq!(kept[kept.len() - 1], 7);
        file.set_len(100).unwrap();
        println!("{}", kept[kept.len() - 1]);
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_of_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        std::fs::write(&path, vec![7u8; 1 << 20]).unwrap();
        let name = "base::mapped::tests::reads_what_is_gone";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args([name, "--exact", "--ignored", "--nocapture"]).env(FILE, &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.status.signal()), (Some(1), None), "{said}");
        let expected =
            format!("error: {}: cannot be read any more: another program has made it shorter", path.display());
        assert!(said.contains(&expected) && said.matches('\n').count() == 1, "{said}");
    }

    #[test]
    fn zeros_behind_the_new_end_of_a_file_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        std::fs::write(&path, vec![7u8; 3000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = Mapped::new(&file, &path).unwrap();
        map.expect_whole().unwrap();
        file.set_len(100).unwrap();
        assert_eq!(map[2000], 0, "the rest of a page is zero without a signal");
        let said = map.expect_whole().unwrap_err().to_string();
        assert!(said.contains("x.safetensors: cannot be read any more"), "{said}");
    }
}
