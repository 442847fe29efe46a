//! The foundations that all other modules use.

#[macro_use]
pub mod outside;

pub mod bar_terminal;
pub mod files;
pub mod hash;
pub mod logging;
pub mod noise;
pub mod pickle;
pub mod random;
pub mod sealed;
pub mod small;
pub mod tensor;
pub mod tensor_file;
