//! The foundations that all other modules use.

#[macro_use]
pub mod outside;

pub mod checksummed;
pub mod files;
#[cfg(test)]
pub mod golden;
pub mod hash;
pub mod keeper;
pub mod logging;
pub mod mapped;
pub mod pickle;
pub mod random;
pub mod small;
pub mod tar;
pub mod tensor;
pub mod tensor_file;
