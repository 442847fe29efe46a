//! The config files of an experiment and the `--set` arguments, merged in order.

use std::path::PathBuf;

use crate::schema::{Problems, Tree, Value};

/// The tables that hold one variant each, such as `[method.svgd]`. Naming another variant replaces the first.
const CHOICE_TABLES: [&str; 5] = ["head", "data", "subspace", "method", "optimizer"];

/// Merges `files` left to right, then `sets` (`a.b.c=value` each).
///
/// # Errors
/// Fails with all files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
pub fn load_config(files: &[PathBuf], sets: &[String]) -> Result<Tree, Problems> {
    let mut tree = Tree::load(files, sets, &CHOICE_TABLES)?;
    rename(&mut tree);
    Ok(tree)
}

/// The table, old name and new name of renamed keys, so that configs and runs of earlier versions still open.
const RENAMED: [(&str, &str, &str); 1] = [("train", "checkpoint_minutes", "save_minutes")];

fn rename(tree: &mut Tree) {
    let Value::Table(tables) = &mut tree.root.value else { return };
    for (table, old, new) in RENAMED {
        if let Some(Value::Table(keys)) = tables.get_mut(table).map(|node| &mut node.value)
            && let Some(value) = keys.remove(old)
        {
            keys.entry(new.to_string()).or_insert(value);
        }
    }
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
