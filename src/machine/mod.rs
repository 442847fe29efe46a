//! The machine that a run has: how precisely it computes, and in how many pieces.

mod chunk;
pub mod device;
pub mod memory;
pub mod parallel;
mod precision;

pub use chunk::Chunk;
pub use precision::Precision;
