//! The optimizers, one file each: a new one is its file and its line in [`OPTIMIZERS`].

mod adamw;
mod none;
mod sgd;

use crate::optimizers::Entry;

/// Every known optimizer.
pub static OPTIMIZERS: &[&Entry] = &[&adamw::ENTRY, &sgd::ENTRY, &none::ENTRY];
