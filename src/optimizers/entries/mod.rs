//! The optimizers, one file each. A new optimizer is one file and its line in [`OPTIMIZERS`].

mod adahessian;
mod adamw;
mod none;
mod sgd;

use crate::optimizers::Entry;

pub use adamw::adam;

/// All registered optimizers.
pub static OPTIMIZERS: &[&Entry] = &[&adamw::ENTRY, &sgd::ENTRY, &adahessian::ENTRY, &none::ENTRY];
