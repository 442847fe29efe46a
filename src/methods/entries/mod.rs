//! The methods, one file each. A new method needs its file and a line in [`METHODS`].

mod ensemble;
pub mod ivon;
mod laplace;
mod map;
mod sgld;
pub mod svgd;
mod swag;

use crate::methods::Entry;

/// Every known method, in the order of legends.
pub static METHODS: &[&Entry] =
    &[&map::ENTRY, &ensemble::ENTRY, &svgd::ENTRY, &ivon::ENTRY, &laplace::ENTRY, &swag::ENTRY, &sgld::ENTRY];
