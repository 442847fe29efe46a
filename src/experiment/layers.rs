//! The config files of an experiment and the `--set` arguments, merged in order.

use std::path::PathBuf;

use crate::schema::{Problems, Tree};

/// The tables that hold one variant each, such as `[method.svgd]`. Naming another variant replaces the first.
const CHOICE_TABLES: [&str; 5] = ["head", "data", "subspace", "method", "optimizer"];

/// Merges `files` left to right, then `sets` (`a.b.c=value` each).
///
/// # Errors
/// Fails with all files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
pub fn load_config(files: &[PathBuf], sets: &[String]) -> Result<Tree, Problems> {
    Tree::load(files, sets, &CHOICE_TABLES)
}

/// Merges `part` over `base`, as if it were a later file.
pub fn over(part: Tree, base: Tree) -> Tree {
    part.over(base, &CHOICE_TABLES)
}

/// Returns whether `tree` has settings but neither of the tables `checkpoint` and `data`. Such a file is merged after an
/// experiment.
pub fn is_part(tree: &Tree) -> bool {
    !tree.is_empty() && !["checkpoint", "data"].iter().any(|key| tree.has(key))
}
