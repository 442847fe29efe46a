//! Values of a config, each with the text it was written as and the place where it stands.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A table's entries by key.
pub type Table = BTreeMap<String, Node>;

/// Where a value was written. Ordered as the mistakes are listed: by file, by line, then the `--set` arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The `order`-th file; `line` counts from 1, and is 0 for the file as a whole.
    File { order: usize, line: usize, file: Arc<str> },
    /// The `order`-th `--set` argument.
    Set { order: usize },
}

impl Origin {
    /// The same file without a line.
    pub fn whole(&self) -> Origin {
        match self {
            Origin::File { order, file, .. } => Origin::File { order: *order, file: file.clone(), line: 0 },
            Origin::Set { order } => Origin::Set { order: *order },
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line: 0, .. } => f.write_str(file),
            Origin::File { file, line, .. } => write!(f, "{file}:{line}"),
            Origin::Set { .. } => f.write_str("--set"),
        }
    }
}

/// A TOML value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Table(Table),
    Array(Vec<Node>),
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime,
}

/// A value, the text it was written as (one line, shortened; empty for a table), and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub value: Value,
    pub written: String,
    pub origin: Origin,
}
