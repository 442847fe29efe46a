//! Analyses of trained particles: merging them, comparing them, the error on the plane through three of them, and the
//! influence of each training image.

pub mod landscape;
pub mod merge;
pub mod sensitivity;
pub mod similarity;
