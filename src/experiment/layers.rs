//! The config files of an experiment and the `--set` arguments, merged in order.

use std::path::PathBuf;

use super::short::{CHOICE_TABLES, full_key, may_be_short};
use crate::schema::{Origin, Problems, SET, Tree};

/// Merges `files` left to right, then `sets` (`a.b.c=value` each). The last part of a key is enough where it is unique among
/// the keys of the config's tables.
///
/// # Errors
/// Fails with all files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
pub fn load_config(files: &[PathBuf], sets: &[String]) -> Result<Tree, Problems> {
    Tree::load(files, &full_sets(files, sets)?, &CHOICE_TABLES)
}

/// Returns overrides with their keys written in full.
fn full_sets(files: &[PathBuf], sets: &[String]) -> Result<Vec<String>, Problems> {
    let short = |set: &str| set.split_once('=').map(|(key, _)| key.trim()).filter(|key| may_be_short(key)).is_some();
    if !sets.iter().any(|set| short(set)) {
        return Ok(sets.to_vec());
    }
    let others: Vec<String> = sets.iter().filter(|set| !short(set)).cloned().collect();
    // The load of all overrides finds the same mistakes, each with its own place among them.
    let Ok(tree) = Tree::load(files, &others, &CHOICE_TABLES) else { return Ok(sets.to_vec()) };
    let mut problems = Problems::default();
    let mut full = Vec::new();
    for (order, set) in sets.iter().enumerate() {
        let found = set.split_once('=').map(|(key, value)| (full_key(&tree, key.trim()), value));
        match found {
            Some((Ok(Some(key)), value)) => full.push(format!("{key}={value}")),
            Some((Err(why), _)) => problems.push(Origin::Set { order, option: SET }, why),
            Some((Ok(None), _)) | None => full.push(set.clone()),
        }
    }
    problems.into_result(full)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_behind_a_short_key_keeps_its_place() {
        let sets = ["lr=1", "method.svgd.gamma"].map(str::to_string);
        let problems = load_config(&[], &sets).unwrap_err();
        assert!(problems.to_string().starts_with("--set"), "{problems}");
        let problems = problems.given_by("--over", 1).to_string();
        assert!(problems.starts_with("--over"), "{problems}");
    }
}
