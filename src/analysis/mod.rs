//! What trained particles say of each other: merged, compared, laid out on a plane, leant on by single images.

pub mod landscape;
pub mod merge;
pub mod sensitivity;
pub mod similarity;
