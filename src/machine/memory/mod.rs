//! The memory that this process may still take, and the part of a task that goes through the network at once because of
//! it.

mod chunker;
mod limits;
mod plan;

use std::sync::atomic::{AtomicU64, Ordering};

use tch::Device;

use crate::machine::gpu_memory;

pub use chunker::{AtMost, ChunkSize, Chunker, MemoryEstimate, planned_bytes};
pub use plan::{Task, Within, room};

/// The number of processes that share this machine's memory in one run.
static NEIGHBOURS: AtomicU64 = AtomicU64::new(1);

/// The number of bytes that the user allows this process to hold (`--memory`); 0 if there is no such limit.
static ALLOWED: AtomicU64 = AtomicU64::new(0);

/// Divides the machine's free memory, and that of the control groups, among this many processes, since all of them measure it before any takes some.
/// Each process has its own GPU, so GPU memory is not divided.
pub fn divide_among(processes: usize) {
    NEIGHBOURS.store(processes.max(1) as u64, Ordering::Relaxed);
}

/// Makes all plans as if this process must hold no more than `bytes` in total.
pub fn allow(bytes: u64) {
    ALLOWED.store(bytes, Ordering::Relaxed);
}

/// Returns the memory of a device that this process may still take, in bytes, if the system reports it. On the CPU it
/// is the smallest of three amounts: a share of the machine's available memory and of the rest within the process's control
/// groups, the rest within its resource limits, and the rest of what the user allows. Memory that libtorch has freed but the C library still holds,
/// or libtorch's own cache on a GPU, is first returned to the system.
pub fn free_bytes(device: Device) -> Option<u64> {
    match device {
        Device::Cpu => {
            release_freed();
            let mut system = sysinfo::System::new();
            system.refresh_memory();
            // A system that does not report its memory has none in all.
            let machine = Some(system.available_memory()).filter(|_| system.total_memory() > 0);
            let shared = share([machine, limits::groups()], NEIGHBOURS.load(Ordering::Relaxed));
            least([shared, limits::resources(), left_of_allowed(held_bytes(Device::Cpu))])
        }
        // Others may hold a part of the GPU, which is not free, and which counts as little in what the user allows this process.
        Device::Cuda(index) => least([gpu_memory::free(index), left_of_allowed(held_bytes(device))]),
        _ => None,
    }
}

/// Returns the part that each of so many processes has of what they share: the machine's memory, and that of their control groups.
/// `None` if neither is known.
fn share(free: [Option<u64>; 2], processes: u64) -> Option<u64> {
    free.into_iter().flatten().min().map(|bytes| bytes / processes)
}

/// Returns the smallest of the amounts that are known, at least 1, since nothing that is left is no missing limit; `None` if none is
/// known.
fn least<const N: usize>(amounts: [Option<u64>; N]) -> Option<u64> {
    amounts.into_iter().flatten().min().map(|bytes| bytes.max(1))
}

/// Returns the bytes that `--memory` still allows when `held` bytes are taken; `None` if there is no such limit. If the system does not report how much is held, nothing counts as held.
fn left_of_allowed(held: Option<u64>) -> Option<u64> {
    match ALLOWED.load(Ordering::Relaxed) {
        0 => None,
        allowed => Some(allowed.saturating_sub(held.unwrap_or(0))),
    }
}

/// Returns the bytes that this process holds on a device, if the system reports it: its resident memory on the CPU, its
/// tensors on a GPU.
pub fn held_bytes(device: Device) -> Option<u64> {
    match device {
        Device::Cuda(index) => gpu_memory::tensors(index).map(|tensors| tensors.now),
        _ => status_bytes("VmRSS:"),
    }
}

/// Returns the largest amount that this process has held on a device so far, in bytes, if the system reports it.
pub fn peak_bytes(device: Device) -> Option<u64> {
    match device {
        Device::Cuda(index) => gpu_memory::tensors(index).map(|tensors| tensors.peak),
        _ => status_bytes("VmHWM:"),
    }
}

/// Restarts the count of [`peak_bytes`] at what is held now (Linux, on the CPU).
pub fn restart_peak(device: Device) {
    match device {
        Device::Cuda(index) => gpu_memory::restart_peak(index),
        _ => {
            release_freed();
            // If this fails, the earlier peak remains: the figure is then too large, but still an upper bound.
            let _ = std::fs::write("/proc/self/clear_refs", "5");
        }
    }
}

fn status_bytes(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Keeps freed memory for the next tensors instead of returning it to the system. A step allocates gigabytes and frees
/// them again; on CPUs, a fifth of its time went into pages that the system had to clear every time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed() {
    const NEVER: i32 = -1;
    const ONE_GIB: i32 = 1 << 30;
    // SAFETY: no pointers are passed, and the C library ignores invalid numbers.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, NEVER);
        libc::mallopt(libc::M_MMAP_THRESHOLD, ONE_GIB);
    }
}

/// Does nothing, since only glibc needs this.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed() {}

/// Gives large tensors pages of their own from now on, which go back to the system when they are freed. In what [`keep_freed`] keeps, the
/// tensors of a block of a large network come to lie between those that stay, and the holes take more than these
/// (results/quantised.md); such a network computes so long with a tensor that clearing its pages costs little.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn return_large() {
    const FOUR_MIB: i32 = 1 << 22;
    // SAFETY: no pointers are passed, and the C library ignores invalid numbers.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, FOUR_MIB);
    }
}

/// Does nothing, since only glibc needs this.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn return_large() {}

/// Returns the bytes that this process has allocated and not freed, if the C library tells.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn allocated_bytes() -> Option<u64> {
    // SAFETY: the call only reads the allocator's own counts.
    let counts = unsafe { libc::mallinfo2() };
    Some((counts.uordblks + counts.hblkhd) as u64)
}

/// Returns nothing, since only glibc tells.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn allocated_bytes() -> Option<u64> {
    None
}

/// Returns the memory that was freed so far to the system, so that it counts as free.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn release_freed() {
    // SAFETY: no pointers are passed; only unused pages are returned.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Does nothing, since only glibc needs this.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_freed() {}

/// Converts bytes to GiB, for messages.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_divide_what_is_free() {
        let of = |machine, groups| share([machine, groups], 4);
        let known = [of(Some(1000), None), of(Some(1000), Some(400)), of(Some(100), Some(400)), of(None, Some(400))];
        assert_eq!((known, of(None, None)), ([250, 100, 25, 100].map(Some), None));
        let alone = free_bytes(Device::Cpu).unwrap();
        divide_among(1000);
        let each = free_bytes(Device::Cpu).unwrap();
        divide_among(1);
        assert!(each < alone / 10, "{each} of {alone}");
    }

    /// A control group that is full, or `ulimit -d` that is used up, leaves 0 bytes, which must not be taken for no limit.
    #[test]
    fn nothing_left_is_no_missing_limit() {
        assert_eq!(least([Some(1 << 30), Some(0), None]), Some(1));
        assert_eq!(least([None, Some(7)]), Some(7));
        assert_eq!(least([None, None]), None);
    }

    #[test]
    fn what_the_user_allows_counts_what_is_held() {
        let held = held_bytes(Device::Cpu).unwrap();
        allow(held + (64 << 20));
        let left = free_bytes(Device::Cpu).unwrap();
        allow(1);
        let none = free_bytes(Device::Cpu).unwrap();
        allow(0);
        assert!(left <= (96 << 20), "{left}");
        assert_eq!(none, 1);
    }
}
