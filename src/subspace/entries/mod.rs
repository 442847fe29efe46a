//! The subspaces, one file each. A new subspace needs its file and a line in [`SUBSPACES`].

mod full;
mod last_layer;
pub mod low_rank;
mod projections;
mod rank_one;

use crate::subspace::Entry;

/// Every known subspace.
pub static SUBSPACES: &[&Entry] =
    &[&low_rank::ENTRY, &full::ENTRY, &last_layer::ENTRY, &projections::ENTRY, &rank_one::ENTRY];
