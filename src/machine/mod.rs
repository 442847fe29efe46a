//! The machine on which a run computes: its devices, memory and processes, and the type of numbers.

mod calls;
pub mod child;
pub mod device;
pub mod fused;
mod gpu_memory;
pub mod linear_kernels;
pub mod memory;
pub mod memory_file;
pub mod parallel;
pub mod quantised;
pub mod wait;
pub mod workers;

pub use device::{Chunk, Precision};
pub use wait::Wait;

/// Returns the number of cores that this process may use; 1 if the system does not tell it.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the processor seconds that this process has taken so far with all its threads, also those that have ended; `None` where the
/// system does not tell.
pub fn processor_seconds() -> Option<f64> {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes one timespec, which is ours.
        let code = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        (code == 0).then_some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn threads_that_have_ended_count() {
        let before = processor_seconds().unwrap();
        let work = || (0..40_000_000u64).fold(1u64, |sum, i| std::hint::black_box(sum.wrapping_mul(i | 1)));
        std::thread::spawn(work).join().unwrap();
        let taken = processor_seconds().unwrap() - before;
        assert!(taken > 0.005, "{taken} s");
    }
}
