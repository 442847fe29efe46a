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
