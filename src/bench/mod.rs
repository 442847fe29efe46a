//! The cost of training and prediction: trainable parameters, memory, disk, seconds, and the share that they reach of
//! this machine's rate of matrix products. Each case runs in its own process, so its peak memory includes no other
//! case.

pub mod case;
pub mod estimate;
pub mod flops;
pub mod measure;
pub mod measured;
pub mod row;
mod step;
mod timed;
