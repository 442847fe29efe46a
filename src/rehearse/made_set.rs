//! A made-up data set: which stand-in writes it, and how large it is.

use super::Scale;
use super::standins::{StandIn, Wanted};

/// The number of corruptions that a set with corrupted versions is made with.
pub const CORRUPTIONS: usize = 1;
/// The most pixels a side of an image in a tiny rehearsal.
const TINY_SIDE: u32 = 20;

/// A made-up data set.
pub struct MadeSet {
    pub stand_in: &'static StandIn,
    pub wanted: Wanted,
}

/// Pixels a side of a stand-in's image files.
pub fn side(stand_in: &StandIn, scale: Scale) -> u32 {
    if scale == Scale::Tiny { stand_in.side.min(TINY_SIDE) } else { stand_in.side }
}
