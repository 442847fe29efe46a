//! The heads, one file each. A new head needs its file and a line in [`HEADS`].

pub mod answers;
mod checkpoint;
mod gaussian;
mod label_words;
mod linear;
mod random_features;
mod zero_shot;

use crate::model::head::Entry;

/// Every known head.
pub static HEADS: &[&Entry] = &[
    &zero_shot::ENTRY,
    &linear::ENTRY,
    &random_features::ENTRY,
    &checkpoint::ENTRY,
    &label_words::ENTRY,
    &answers::ENTRY,
    &gaussian::ENTRY,
];
