//! A whole posterior as a graph of operations, which other programs run without bella.

pub mod forward;
mod layers;
pub mod members;
pub mod values;
