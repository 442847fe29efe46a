//! The ground that everything stands on.

pub mod files;
pub mod hash;
pub mod logging;
pub mod pickle;
pub mod random;
pub mod sealed;
pub mod tensor;
pub mod tensor_file;
