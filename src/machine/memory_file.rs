//! A file without a name, for what another library wants to read from a path.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A file that ends with its value. On Linux its bytes lie in memory.
pub struct MemoryFile {
    file: File,
    path: PathBuf,
}

impl MemoryFile {
    /// Makes an empty file.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    pub fn new() -> Result<MemoryFile> {
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: the call reads the name, which ends with a zero.
        let number = unsafe { libc::memfd_create(c"bella".as_ptr(), libc::MFD_CLOEXEC) };
        if number < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the number is that of a file that was opened here and belongs to nobody else.
        let file = unsafe { File::from_raw_fd(number) };
        Ok(MemoryFile { path: format!("/proc/self/fd/{}", file.as_raw_fd()).into(), file })
    }

    /// Makes an empty file in the folder for temporary files, since this system has no files in memory.
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    pub fn new() -> Result<MemoryFile> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("bella-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(MemoryFile { file, path })
    }

    /// Returns a path under which this process can open the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the first `most` bytes.
    pub fn start(&self, most: u64) -> Result<Vec<u8>> {
        let (mut file, mut bytes) = (&self.file, Vec::new());
        file.seek(SeekFrom::Start(0))?;
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
impl Drop for MemoryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
