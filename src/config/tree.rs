//! Config files and `--set` arguments merged into one tree of values, each of which knows where it was written.
//! Files merge left to right, then the `--set` arguments; the tables in `CHOICE_TABLES` replace each other's variants.
//! Every mistake is collected, none stops the reading of the rest.

mod merge;
mod problems;
mod syntax;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use problems::{Problem, Problems, one_line};

/// Top-level tables that hold one variant each, such as `[method.svgd]`: naming another variant replaces the first.
pub const CHOICE_TABLES: [&str; 5] = ["head", "data", "subspace", "method", "optimizer"];

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

/// The merged config.
#[derive(Clone, Debug)]
pub struct Tree {
    pub root: Node,
}

impl Tree {
    /// Reads `files`, merges them left to right, then applies `sets` (`a.b.c=value` each).
    ///
    /// # Errors
    /// All files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
    pub fn load(files: &[PathBuf], sets: &[String]) -> Result<Tree, Problems> {
        let mut problems = Problems::default();
        let mut layers = Vec::new();
        for (order, path) in files.iter().enumerate() {
            let origin = Origin::File { order, file: path.display().to_string().into(), line: 0 };
            match read_text(path) {
                Ok(text) => layers.extend(syntax::parse_file(&text, &origin, &mut problems)),
                Err(why) => problems.push(origin, why),
            }
        }
        for (order, argument) in sets.iter().enumerate() {
            layers.extend(syntax::parse_set(argument, order, &mut problems));
        }
        let mut table = Table::new();
        for layer in layers {
            merge::merge_root(&mut table, layer, &CHOICE_TABLES);
        }
        let names: Vec<String> = files.iter().map(|p| p.display().to_string()).collect();
        problems.into_result(Tree::new(table, &names))
    }

    /// Parses one text, called `name` in messages.
    ///
    /// # Errors
    /// All its syntax errors.
    pub fn parse(name: &str, text: &str) -> Result<Tree, Problems> {
        let mut problems = Problems::default();
        let origin = Origin::File { order: 0, file: name.into(), line: 0 };
        let table = syntax::parse_file(text, &origin, &mut problems).unwrap_or_default();
        problems.into_result(Tree::new(table, &[name.to_owned()]))
    }

    /// This tree laid over `base`, as a file that follows it.
    pub fn over(self, base: Tree) -> Tree {
        let Node { value, written, origin } = self.root;
        let (Value::Table(mut table), Value::Table(own)) = (base.root.value, value) else {
            unreachable!("the root of a tree is a table")
        };
        merge::merge_root(&mut table, own, &CHOICE_TABLES);
        Tree { root: Node { value: Value::Table(table), written, origin } }
    }

    /// Whether this says something, but nothing about what is trained on what: a file to merge after an experiment.
    pub fn is_part(&self) -> bool {
        let Value::Table(table) = &self.root.value else { return false };
        !table.is_empty() && !["checkpoint", "head", "data"].iter().any(|key| table.contains_key(*key))
    }

    fn new(table: Table, names: &[String]) -> Tree {
        let origin = if names.is_empty() {
            Origin::Set { order: 0 }
        } else {
            Origin::File { order: 0, file: names.join(" + ").into(), line: 0 }
        };
        Tree { root: Node { value: Value::Table(table), written: String::new(), origin } }
    }
}

fn read_text(path: &PathBuf) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("is not UTF-8 text (byte {at}): is this a TOML file?")
    })
}

#[cfg(test)]
mod tests;
