//! How much memory is free, and how many particles go through the network at once for it.

use std::sync::atomic::{AtomicU64, Ordering};

use tch::Device;

use crate::machine::Chunk;
use crate::model::Model;
use crate::subspace::Layout;

/// Share of the free memory that activations may take.
const SHARE: f64 = 0.5;

/// Processes that share this machine's memory in one run.
static NEIGHBOURS: AtomicU64 = AtomicU64::new(1);

/// Bytes that one particle takes with one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Kept for the way back, with gradients.
    pub training: u64,
    pub predicting: u64,
}

impl Footprint {
    /// Of a model whose first trained block is `layout`'s; activations of blocks are kept, or `recompute`d.
    pub fn new(model: &Model, layout: &Layout, recompute: bool) -> Footprint {
        /// Widths a token that a block keeps: inputs of both norms and of all linear layers, q, k and v, and the MLP's hidden
        /// values twice; measured peaks are a little lower.
        const KEPT: u64 = 20;
        /// Widths a token that live at once within one block.
        const LIVE: u64 = 12;
        let geometry = &model.vit.geometry;
        let token = geometry.width as u64 * model.kind.elt_size_in_bytes() as u64;
        let tokens = (1 + geometry.grid * geometry.grid) as u64;
        let trained = (geometry.blocks - layout.first_block(geometry.blocks)) as u64;
        let kept = if recompute { trained + KEPT } else { trained * KEPT };
        Footprint { training: tokens * token * (kept + LIVE), predicting: tokens * token * LIVE }
    }
}

/// Particles in one forward of `images` images each, for `bytes` bytes a particle and image.
pub fn particles_at_once(chunk: Chunk, particles: usize, images: usize, bytes: u64, device: Device) -> usize {
    match chunk {
        Chunk::Fixed(0) => particles,
        Chunk::Fixed(count) => count.min(particles),
        Chunk::Auto => match free_bytes(device) {
            Some(free) => fitting(particles, (free as f64 * SHARE) as u64, images as u64 * bytes),
            None => particles,
        },
    }
}

/// Chunks of about equal size, each of which fits.
fn fitting(particles: usize, room: u64, each: u64) -> usize {
    let most = (room / each.max(1)).clamp(1, particles.max(1) as u64) as usize;
    particles.div_ceil(particles.div_ceil(most).max(1)).max(1)
}

/// From now on the machine's free memory counts as divided among so many processes, which all look at it before any of them
/// takes some. Each has a GPU of its own.
pub fn divide_among(processes: usize) {
    NEIGHBOURS.store(processes.max(1) as u64, Ordering::Relaxed);
}

/// Keeps freed memory for the next tensors instead of handing it back to the system. A step allocates gigabytes and frees them
/// again; pages that the system has to clear every time took a fifth of it on processors.
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

/// Only glibc has to be told.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed() {}

/// Free memory of a device, where the system tells: what this process may still take.
pub fn free_bytes(device: Device) -> Option<u64> {
    match device {
        Device::Cpu => {
            let mut system = sysinfo::System::new();
            system.refresh_memory();
            let limited = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
            let free = system.available_memory().min(limited) / NEIGHBOURS.load(Ordering::Relaxed);
            Some(free).filter(|bytes| *bytes > 0)
        }
        Device::Cuda(index) => crate::device::cuda_free_bytes(index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_even_and_fit() {
        assert_eq!(fitting(100, 1000, 10), 100);
        assert_eq!(fitting(100, 990, 10), 50);
        assert_eq!(fitting(100, 300, 10), 25);
        assert_eq!(fitting(5, 9, 10), 1);
        assert_eq!(fitting(7, 40, 10), 4);
    }

    #[test]
    fn fixed_chunks_ask_for_no_memory() {
        let device = Device::Cpu;
        assert_eq!(particles_at_once(Chunk::Fixed(0), 9, 1, u64::MAX, device), 9);
        assert_eq!(particles_at_once(Chunk::Fixed(4), 9, 1, u64::MAX, device), 4);
        assert_eq!(particles_at_once(Chunk::Auto, 9, 1, u64::MAX, device), 1);
        assert!(free_bytes(device).is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn neighbours_divide_what_is_free() {
        let alone = free_bytes(Device::Cpu).unwrap();
        divide_among(1000);
        let each = free_bytes(Device::Cpu).unwrap();
        divide_among(1);
        assert!(each < alone / 10, "{each} of {alone}");
    }
}
