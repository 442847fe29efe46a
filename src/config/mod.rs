//! Experiments: TOML files and `--set` merged ([`tree`]), read and checked ([`reader`]), resolved to an [`Experiment`].
//!
//! Every mistake of a config is reported at once, before any weight is read.

mod experiment;
mod identity;
pub mod reader;
mod training;
pub mod tree;

use serde::Serialize;

pub use experiment::{CheckpointSpec, DataSpec, Experiment, Normalize, Validation};
pub use reader::{Bounds, Choice, Reader};
pub use training::{Batches, Chunk, Precision, PrefixCache, Schedule, Selection, TrainSpec, Training};
pub use tree::{Problems, Tree};

/// A settings struct as a TOML table, for the resolved config.
pub fn table(settings: &impl Serialize) -> toml::Table {
    match toml::Table::try_from(settings) {
        Ok(table) => table,
        Err(error) => unreachable!("settings structs are plain tables: {error}"),
    }
}
