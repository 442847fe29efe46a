//! The library that reads configs: TOML files and `--set` arguments merged to a [`Tree`], read through a [`Reader`] that
//! checks every value and collects every mistake. It knows no key of any config.

mod bounds;
mod choice;
mod merge;
mod node;
mod problems;
mod reader;
mod suggest;
mod survey;
mod syntax;
mod tree;

use serde::Serialize;

pub use bounds::Bounds;
pub(crate) use choice::words;
pub use choice::{Choice, UnknownWord, possible_value};
pub use node::{Node, Origin, Table, Value};
pub use problems::{Problem, Problems, one_line};
pub use reader::{Field, Reader};
pub use suggest::suggest;
pub use survey::{Absence, Asked, Given, Survey};
pub use tree::Tree;

/// A settings struct as a TOML table, for the resolved config.
pub fn table(settings: &impl Serialize) -> toml::Table {
    match toml::Table::try_from(settings) {
        Ok(table) => table,
        Err(error) => unreachable!("settings structs are plain tables: {error}"),
    }
}
