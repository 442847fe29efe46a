//! How much memory this process may still take, and how much of a task goes through the network at once for it.

mod cutter;
mod limits;
mod need;
mod plan;

use std::sync::atomic::{AtomicU64, Ordering};

use tch::Device;

pub use cutter::{Cutter, planned_bytes};
pub use need::{Cut, Need};
pub use plan::{Task, room};

/// Processes that share this machine's memory in one run.
static NEIGHBOURS: AtomicU64 = AtomicU64::new(1);

/// What the user allows this process to hold (`--memory`), in bytes; 0 where nothing was said.
static ALLOWED: AtomicU64 = AtomicU64::new(0);

/// Divides the machine's free memory among so many processes, which all look at it before any of them takes some. Each
/// process has a GPU of its own, so GPU memory is not divided.
pub fn divide_among(processes: usize) {
    NEIGHBOURS.store(processes.max(1) as u64, Ordering::Relaxed);
}

/// Plans as if this process might hold no more than `bytes` in all.
pub fn allow(bytes: u64) {
    ALLOWED.store(bytes, Ordering::Relaxed);
}

/// The memory of a device that this process may still take, in bytes, where the system tells: on the CPU the least of
/// what the machine has available, what the process's control groups and resource limits leave, and what the user allows.
/// Memory that libtorch has freed but the C library still holds is handed back first.
pub fn free_bytes(device: Device) -> Option<u64> {
    match device {
        Device::Cpu => {
            release_freed();
            let mut system = sysinfo::System::new();
            system.refresh_memory();
            let machine = system.available_memory() / NEIGHBOURS.load(Ordering::Relaxed);
            let free = [Some(machine), limits::left(), left_of_allowed(held_bytes())];
            free.into_iter().flatten().min().filter(|bytes| *bytes > 0)
        }
        Device::Cuda(index) => {
            let (free, total) = crate::machine::device::cuda_memory_bytes(index)?;
            Some(left_of_allowed(Some(total - free)).map_or(free, |allowed| allowed.min(free)))
        }
        _ => None,
    }
}

/// What `--memory` leaves when `held` bytes are taken; nothing is left where the system does not tell what is held.
fn left_of_allowed(held: Option<u64>) -> Option<u64> {
    match ALLOWED.load(Ordering::Relaxed) {
        0 => None,
        allowed => Some(allowed.saturating_sub(held.unwrap_or(0)).max(1)),
    }
}

/// The resident memory of this process, in bytes, where the system tells.
pub fn held_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// The largest resident memory of this process so far, in bytes, where the system tells.
pub fn peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Keeps freed memory for the next tensors instead of handing it back to the system. A step allocates gigabytes and frees
/// them again; on processors, a fifth of its time went into pages that the system had to clear every time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed() {
    const NEVER: i32 = -1;
    const ONE_GIB: i32 = 1 << 30;
    // SAFETY: no pointers; numbers that the C library does not like are ignored.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, NEVER);
        libc::mallopt(libc::M_MMAP_THRESHOLD, ONE_GIB);
    }
}

/// Does nothing: only glibc has to be told.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed() {}

/// Hands the memory that was freed so far back to the system, so that it counts as free.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn release_freed() {
    // SAFETY: no pointers; pages that hold nothing are given back.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Does nothing: only glibc has to be told.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_freed() {}

/// Bytes in GiB, for messages.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_divide_what_is_free() {
        let alone = free_bytes(Device::Cpu).unwrap();
        divide_among(1000);
        let each = free_bytes(Device::Cpu).unwrap();
        divide_among(1);
        assert!(each < alone / 10, "{each} of {alone}");
    }

    #[test]
    fn what_the_user_allows_counts_what_is_held() {
        let held = held_bytes().unwrap();
        allow(held + (64 << 20));
        let left = free_bytes(Device::Cpu).unwrap();
        allow(1);
        let none = free_bytes(Device::Cpu).unwrap();
        allow(0);
        assert!(left <= (96 << 20), "{left}");
        assert_eq!(none, 1);
    }
}
