//! What training and prediction cost: trainable parameters, memory, disk, seconds, and the share of this machine's rate of
//! matrix products that they reach. Every case runs in a process of its own, so that its peak memory is its own.

pub mod case;
pub mod clock;
pub mod flops;
pub mod measure;
mod peak;
mod rate;
pub mod row;
mod timed;

pub use peak::volunteer;
