//! Stand-ins for data sets: made-up images in the official layout of each set, under its official file names, so that
//! bella's own readers read them. `entries/` has one file per layout, registered in [`STAND_INS`].

mod contract;
mod entries;
mod mat;
mod paint;
#[cfg(test)]
mod tests;
pub mod words;

use anyhow::{Context, Result};

pub use contract::{StandIn, Wanted};
pub use entries::STAND_INS;

/// Returns the stand-in of a data set.
///
/// # Errors
/// Fails if the data set has none.
pub fn find(key: &str) -> Result<&'static StandIn> {
    let found = STAND_INS.iter().copied().find(|stand_in| stand_in.key == key);
    found.with_context(|| format!("data.{key}: there is no stand-in for this data set; register one in STAND_INS"))
}
