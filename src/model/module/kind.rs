//! The entry of modules among the kinds of checkpoints.

use crate::model::kind::KindEntry;

pub static KIND: KindEntry = KindEntry {
    word: "module",
    reads: |_| false,
    is_folder: false,
    outline: Err(
        "operations are counted from a network's shape, which a module does not show: measure it by a short `bella train` \
         (train.epochs = 1, data.*.subset)",
    ),
    no_stand_in: Some("runs the module's own forward, for which nothing can stand in"),
    bench: &[],
};
