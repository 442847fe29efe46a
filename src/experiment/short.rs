//! Keys that are named by their last part, such as `lr` for `optimizer.adamw.lr`.

use std::sync::{Arc, Mutex, PoisonError};

use super::keys::{self, Key};
use crate::methods::registered;
use crate::schema::{Node, Tree, Value};

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
    let Value::Table(root) = &tree.root.value else { return None };
    let Some(Node { value: Value::Table(entries), .. }) = root.get(table) else { return None };
    let chosen = entries.keys().next().filter(|_| entries.len() == 1)?;
    (entry == "*" || entry == chosen).then(|| format!("{table}.{chosen}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
