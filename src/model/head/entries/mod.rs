//! The heads, one file each: a new one is its file and its line in [`HEADS`].

mod checkpoint;
mod linear;
mod zero_shot;

use crate::model::head::Entry;

/// Every known head.
pub static HEADS: &[&Entry] = &[&zero_shot::ENTRY, &linear::ENTRY, &checkpoint::ENTRY];
