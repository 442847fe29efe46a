//! A library that reads configs. TOML files and `--set` arguments are merged to a [`Tree`] and read through a
//! [`Reader`], which checks every value and collects every mistake. The library knows no key of any config.

mod bounds;
mod choice;
mod merge;
mod node;
mod problems;
mod reader;
mod settings;
mod suggest;
mod survey;
mod syntax;
mod tree;

use serde::Serialize;
// What `settings!` needs wherever it is called.
#[doc(hidden)]
pub use {serde, toml};

pub use bounds::{Bounds, limits};
pub(crate) use choice::words;
pub use choice::{Choice, UnknownWord, possible_value};
pub use node::{Node, Origin, Table, Value};
pub use problems::{Problem, Problems, one_line};
pub use reader::{CommandLine, Field, Reader};
pub use settings::{Resolved, Setting, put, read_by, settings};
pub use suggest::{hint, suggest};
pub use survey::{Absence, Asked, Given, Survey};
pub use tree::Tree;

/// Converts a settings struct to a TOML table for the resolved config.
pub fn table(settings: &impl Serialize) -> toml::Table {
    match toml::Table::try_from(settings) {
        Ok(table) => table,
        Err(error) => unreachable!("settings structs are plain tables: {error}"),
    }
}
