//! The ground that everything stands on.

pub mod hash;
pub mod random;
