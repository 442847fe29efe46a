//! Merges one layer of a config into another.

use super::node::{Node, Table, Value};

/// Merges `over` into `base`. In the tables named in `choices`, only the variants that `over` names remain.
pub fn merge_root(base: &mut Table, over: Table, choices: &[&str]) {
    for (key, node) in over {
        if choices.contains(&key.as_str())
            && let (Some(Value::Table(old)), Value::Table(new)) =
                (base.get_mut(&key).map(|n| &mut n.value), &node.value)
            && !new.is_empty()
        {
            old.retain(|variant, _| new.contains_key(variant));
        }
        merge_entry(base, key, node);
    }
}

/// Merges one entry. Tables are merged key by key; any other value replaces the previous one.
fn merge_entry(base: &mut Table, key: String, over: Node) {
    let Node { value, written, origin } = over;
    match (base.get_mut(&key).map(|n| &mut n.value), value) {
        (Some(Value::Table(old)), Value::Table(new)) => {
            for (key, node) in new {
                merge_entry(old, key, node);
            }
        }
        (_, value) => {
            let node = Node { value, written, origin };
            base.insert(key, node);
        }
    }
}
