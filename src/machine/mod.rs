//! The machine that a run has: how precisely it computes, and in how many pieces.

mod chunk;
mod precision;

pub use chunk::Chunk;
pub use precision::Precision;
