//! The config files of an experiment and the `--set` arguments, merged in order.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::keys::{self, Key};
use crate::methods::registered;
use crate::schema::{Origin, Problems, SET, Tree};

/// Merges `files` left to right, then `sets` (`a.b.c=value` each). The last part of a key is enough where it is unique among
/// the keys of the config's tables.
///
/// # Errors
/// Fails with all files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
pub fn load_config(files: &[PathBuf], sets: &[String]) -> Result<Tree, Problems> {
    let load = |sets: &[String]| Tree::load(files, sets, &CHOICE_TABLES);
    load(&full_sets(sets, |others| load(others).ok())?)
}

/// Returns overrides with their keys written in full, by the tables of the config that `load` returns with the overrides that are full
/// already. Where it returns none, they stay as they are.
///
/// # Errors
/// Fails with every override whose key may be several ones.
pub fn full_sets(sets: &[String], load: impl FnOnce(&[String]) -> Option<Tree>) -> Result<Vec<String>, Problems> {
    let short = |set: &str| set.split_once('=').map(|(key, _)| key.trim()).filter(|key| may_be_short(key)).is_some();
    if !sets.iter().any(|set| short(set)) {
        return Ok(sets.to_vec());
    }
    let others: Vec<String> = sets.iter().filter(|set| !short(set)).cloned().collect();
    // The load of all overrides finds the same mistakes, each with its own place among them.
    let Some(tree) = load(&others) else { return Ok(sets.to_vec()) };
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

/// The tables that hold one variant each, such as `[method.svgd]`. Naming another variant replaces the first.
pub const CHOICE_TABLES: [&str; 5] = ["head", "data", "subspace", "method", "optimizer"];

/// Returns all keys. They are listed again only after a method has been registered, since a listing runs every reader.
fn known() -> Arc<Vec<Key>> {
    static KNOWN: Mutex<(usize, Option<Arc<Vec<Key>>>)> = Mutex::new((0, None));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let methods = registered().len();
    match &*known {
        (count, Some(keys)) if *count == methods => keys.clone(),
        _ => {
            let keys = Arc::new(keys::all());
            *known = (methods, Some(keys.clone()));
            keys
        }
    }
}

/// Returns whether a key may be the last part of another one: it is a single word and no table.
pub fn may_be_short(key: &str) -> bool {
    let is_word = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word && !keys::REGISTRIES.iter().any(|(table, _)| *table == key) && key != "name" && key != "seed"
}

/// Returns the key whose last part is `short` in the tables that a config has; `None` if there is none.
///
/// # Errors
/// Fails with the candidates if there are several.
pub fn full_key(tree: &Tree, short: &str) -> Result<Option<String>, String> {
    if !may_be_short(short) {
        return Ok(None);
    }
    let found: Vec<String> =
        known().iter().filter(|key| key.name() == short).filter_map(|key| in_config(tree, key)).collect();
    match &found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => Err(format!("`{short}` may be {}: write one of them", several.join(" or "))),
    }
}

/// Returns the path of a key in this config; `None` if the config has another entry of its table.
fn in_config(tree: &Tree, key: &Key) -> Option<String> {
    let (table, rest) = key.path.split_once('.')?;
    if !CHOICE_TABLES.contains(&table) {
        return Some(key.path.clone());
    }
    let (entry, rest) = rest.split_once('.')?;
    let chosen = tree.chosen(table)?;
    (entry == "*" || entry == chosen).then(|| format!("{table}.{chosen}.{rest}"))
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

    #[test]
    fn the_last_part_is_enough_where_it_is_unique_in_a_config() {
        let text = "[data.digits]\n[subspace.low-rank]\n[method.svgd]\n[optimizer.adamw]\n[train]\n";
        let tree = Tree::parse("test.toml", text).unwrap();
        let full = |short: &str| full_key(&tree, short).map(|found| found.unwrap_or_default());
        assert_eq!(full("lr").as_deref(), Ok("optimizer.adamw.lr"));
        assert_eq!(full("gamma").as_deref(), Ok("method.svgd.gamma"));
        assert_eq!(full("epochs").as_deref(), Ok("train.epochs"));
        assert_eq!(full("validation").as_deref(), Ok("data.digits.validation"));
        for other in ["seed", "train", "nothing", "momentum", "optimizer.adamw.lr"] {
            assert_eq!(full(other).as_deref(), Ok(""), "{other}");
        }
        let error = full("eps").unwrap_err();
        assert_eq!(error, "`eps` may be checkpoint.eps or optimizer.adamw.eps: write one of them");
    }
}
