//! A config as written: several TOML files and `--set key=value` arguments, parsed and merged. Every value keeps the
//! place where it was written.
//!
//! Files are merged from left to right, followed by the `--set` arguments. In the choice tables that the caller names,
//! a variant replaces the previous one. All mistakes are collected; none stops the reading of the rest.

use std::path::{Path, PathBuf};

use super::merge::merge_root;
use super::node::{Node, Origin, SET, Table, Value};
use super::problems::Problems;
use super::syntax;
use crate::base::files::read_file;
use crate::base::hash::check_toml_of_anyone;

/// The merged config.
#[derive(Clone, Debug)]
pub struct Tree {
    pub root: Node,
}

impl Tree {
    /// Reads `files`, merges them from left to right, and then applies `sets` (`a.b.c=value` each). `choices` names the
    /// top-level tables that hold one variant each, such as `[method.svgd]`: naming another variant replaces the
    /// previous one.
    ///
    /// # Errors
    /// Fails with all files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
    pub fn load(files: &[PathBuf], sets: &[String], choices: &[&str]) -> Result<Tree, Problems> {
        let mut problems = Problems::default();
        let mut layers = Vec::new();
        for (order, path) in files.iter().enumerate() {
            let origin = Origin::File { order, file: path.display().to_string().into(), line: 0 };
            match read_text(path) {
                Ok(text) if let Err(changed) = check_toml_of_anyone(&text) => {
                    problems.push(origin, format!("{changed:#}"))
                }
                Ok(text) => layers.extend(syntax::parse_file(&text, &origin, &mut problems)),
                Err(why) => problems.push(origin, why),
            }
        }
        for (order, argument) in sets.iter().enumerate() {
            layers.extend(syntax::parse_set(argument, order, &mut problems));
        }
        let mut table = Table::new();
        for layer in layers {
            merge_root(&mut table, layer, choices);
        }
        let names: Vec<String> = files.iter().map(|p| p.display().to_string()).collect();
        problems.into_result(Tree::new(table, &names))
    }

    /// Parses one text, which messages call `name`.
    ///
    /// # Errors
    /// Fails with all syntax errors of the text.
    pub fn parse(name: &str, text: &str) -> Result<Tree, Problems> {
        let mut problems = Problems::default();
        let origin = Origin::File { order: 0, file: name.into(), line: 0 };
        let table = syntax::parse_file(text, &origin, &mut problems).unwrap_or_default();
        problems.into_result(Tree::new(table, &[name.to_owned()]))
    }

    /// Merges this tree into `base`, like a file that follows it. `choices` has the same meaning as in [`Tree::load`].
    pub fn over(self, base: Tree, choices: &[&str]) -> Tree {
        let Node { value, written, origin } = self.root;
        let (Value::Table(mut table), Value::Table(own)) = (base.root.value, value) else {
            unreachable!("the root of a tree is a table")
        };
        merge_root(&mut table, own, choices);
        Tree { root: Node { value: Value::Table(table), written, origin } }
    }

    /// Returns whether there is a top-level entry `key`.
    pub fn has(&self, key: &str) -> bool {
        matches!(&self.root.value, Value::Table(table) if table.contains_key(key))
    }

    /// Returns whether the config has no entry.
    pub fn is_empty(&self) -> bool {
        matches!(&self.root.value, Value::Table(table) if table.is_empty())
    }

    fn new(table: Table, names: &[String]) -> Tree {
        let origin = if names.is_empty() {
            Origin::Set { order: 0, option: SET }
        } else {
            Origin::File { order: 0, file: names.join(" + ").into(), line: 0 }
        };
        Tree { root: Node { value: Value::Table(table), written: String::new(), origin } }
    }
}

/// The largest number of bytes of a config.
const LARGEST: u64 = 16 << 20;

fn read_text(path: &Path) -> Result<String, String> {
    if path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > LARGEST) {
        return Err(format!("has more than {LARGEST} bytes: is this a TOML file?"));
    }
    let bytes = read_file(path).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("is not UTF-8 text (byte {at}): is this a TOML file?")
    })
}

#[cfg(test)]
mod tests;
