//! The subspaces, one file each: a new one is its file and its line in [`SUBSPACES`].

mod full;
pub mod low_rank;

use crate::subspace::Entry;

/// Every known subspace.
pub static SUBSPACES: &[&Entry] = &[&low_rank::ENTRY, &full::ENTRY];
