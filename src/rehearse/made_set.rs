//! A made-up data set: the stand-in that writes it, and its size.

use super::Scale;
use super::standins::{StandIn, Wanted};

/// The number of corruptions in a made-up set with corrupted versions.
pub const CORRUPTIONS: usize = 1;
/// The largest number of pixels per side of an image in a tiny rehearsal.
const TINY_SIDE: u32 = 20;

/// A made-up data set.
pub struct MadeSet {
    pub stand_in: &'static StandIn,
    pub wanted: Wanted,
}

/// Returns the number of pixels per side of a stand-in's image files.
pub fn side(stand_in: &StandIn, scale: Scale) -> u32 {
    if scale == Scale::Tiny { stand_in.side.min(TINY_SIDE) } else { stand_in.side }
}
