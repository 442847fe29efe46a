//! A whole posterior as a graph of operations, which other programs run without bella.

mod attention;
mod block;
pub mod embed;
pub mod forward;
mod layers;
pub mod members;
mod pass;
mod readout;
pub mod values;
