//! The methods, one file each. A new method needs its file and a line in [`METHODS`].

use std::sync::{PoisonError, RwLock};

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
mod mclmc;
mod psgld;
mod sam;
mod scalabl;
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
    &mclmc::ENTRY,
    &imported::ENTRY,
    &ibdr::ENTRY,
    &tfb::ENTRY,
    &bayestune::ENTRY,
    &blob::ENTRY,
    &scalabl::ENTRY,
    &vbll::ENTRY,
    &bayesvlm::ENTRY,
];

static ADDED: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

/// Adds a method. From then on it is available in configs, `bella list`, legends and the bench.
pub fn register(entry: &'static Entry) {
    ADDED.write().unwrap_or_else(PoisonError::into_inner).push(entry);
}

/// Returns every known method, in the order of legends.
pub fn registered() -> Vec<&'static Entry> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    METHODS.iter().chain(added.iter()).copied().collect()
}
