//! The methods, one file each. A new method needs its file and a line in [`METHODS`].

mod bayestune;
mod bayesvlm;
mod bbb;
mod blob;
mod ensemble;
mod ibdr;
mod imported;
pub mod ivon;
mod laplace;
mod map;
mod mc_dropout;
mod psgld;
mod sam;
mod sghmc;
mod sgld;
pub mod svgd;
mod swag;
mod tfb;
mod vbll;
mod vogn;

use crate::methods::Entry;

/// Every known method, in the order of legends.
pub static METHODS: &[&Entry] = &[
    &map::ENTRY,
    &ensemble::ENTRY,
    &sam::ENTRY,
    &svgd::ENTRY,
    &ivon::ENTRY,
    &vogn::ENTRY,
    &bbb::ENTRY,
    &laplace::ENTRY,
    &swag::ENTRY,
    &mc_dropout::ENTRY,
    &sgld::ENTRY,
    &psgld::ENTRY,
    &sghmc::ENTRY,
    &imported::ENTRY,
    &ibdr::ENTRY,
    &tfb::ENTRY,
    &bayestune::ENTRY,
    &blob::ENTRY,
    &vbll::ENTRY,
    &bayesvlm::ENTRY,
];
