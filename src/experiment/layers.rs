//! The config files of an experiment and the `--set` arguments, laid over each other.

use std::path::PathBuf;

use crate::schema::{Problems, Tree};

/// Tables that hold one variant each, such as `[method.svgd]`: naming another variant replaces the first.
const CHOICE_TABLES: [&str; 5] = ["head", "data", "subspace", "method", "optimizer"];

/// `files` merged left to right, then `sets` (`a.b.c=value` each).
///
/// # Errors
/// All files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
pub fn load_config(files: &[PathBuf], sets: &[String]) -> Result<Tree, Problems> {
    Tree::load(files, sets, &CHOICE_TABLES)
}

/// `part` laid over `base`, as a file that follows it.
pub fn over(part: Tree, base: Tree) -> Tree {
    part.over(base, &CHOICE_TABLES)
}

/// Whether `tree` says something, but nothing about what is trained on what: a file to merge after an experiment.
pub fn is_part(tree: &Tree) -> bool {
    !tree.is_empty() && !["checkpoint", "head", "data"].iter().any(|key| tree.has(key))
}
