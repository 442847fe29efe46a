//! The methods, one file each: a new one is its file and its line in [`METHODS`].

mod ensemble;
pub mod ivon;
mod laplace;
mod map;
pub mod svgd;

use crate::methods::Entry;

/// Every known method, in the order of legends.
pub static METHODS: &[&Entry] = &[&map::ENTRY, &ensemble::ENTRY, &svgd::ENTRY, &ivon::ENTRY, &laplace::ENTRY];
