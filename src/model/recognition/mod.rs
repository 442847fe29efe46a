//! The reading of a checkpoint's parameters: their names become the canonical ones, their names and shapes give the geometry,
//! and what these do not tell is found by reproducing an archive's own forward pass.

pub mod complete;
mod fuse;
pub mod identify;
pub mod infer;
pub mod naming;
pub mod namings;
mod recognise;
pub mod text;

pub use naming::{Naming, Package};
pub use namings::NAMINGS;
pub use recognise::{Expected, Named, recognise};
