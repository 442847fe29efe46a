//! The machine: how precisely and in how many pieces it computes.

mod chunk;
mod precision;

pub use chunk::Chunk;
pub use precision::Precision;
