//! The optimizers, one file each. A new optimizer is one file and its line in [`OPTIMIZERS`].

mod adamw;
mod none;
mod sgd;

use crate::optimizers::Entry;

/// All registered optimizers.
pub static OPTIMIZERS: &[&Entry] = &[&adamw::ENTRY, &sgd::ENTRY, &none::ENTRY];
