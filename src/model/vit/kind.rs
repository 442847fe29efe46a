//! The entry of vision transformers among the kinds of checkpoints.

use crate::model::kind::KindEntry;

pub static KIND: KindEntry = KindEntry {
    word: "native",
    reads: |_| false,
    is_folder: false,
    outline: Err(
        "the shape of a vision transformer is that of its weights, or a published one, and no config describes it",
    ),
    no_stand_in: None,
    bench: &[],
};
