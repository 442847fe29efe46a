//! A library that reads configs. TOML files and `--set` arguments are merged to a [`Tree`] and read through a
//! [`Reader`], which checks every value and collects every mistake. The library knows no key of any config.

mod bounds;
mod choice;
mod node;
mod reader;
mod settings;
mod survey;
mod syntax;
mod tree;

pub use bounds::{Bounds, limits};
pub use choice::{Choice, Keyed, UnknownWord, find, hint, keys, possible_value, suggest};
pub(crate) use choice::{keyed, words};
pub use node::{Node, Origin, SET, Table, Value};
pub use node::{Problem, Problems, one_line};
pub use reader::{CommandLine, Field, Reader};
#[doc(hidden)]
pub use settings::{Resolved, Setting, outside, put, read_by, settings, table};
pub use survey::{Absence, Asked, Given, Leading, Survey};
pub use tree::Tree;
