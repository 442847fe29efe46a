//! Studies of trained particles: merging them, comparing them, the error on the plane through three of them, and how much
//! each training image changes them.

pub mod landscape;
pub mod merge;
pub mod sensitivity;
pub mod similarity;
