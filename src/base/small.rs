//! Small helpers for lists and texts, and the mistakes of the user.

use std::collections::HashMap;
use std::hash::Hash;

/// Appends an item unless the list has it already.
pub fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Groups items by their keys. Groups come in the order of their first items, and items keep their order.
pub fn grouped<K: Eq + Hash + Clone, V>(items: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let (mut groups, mut places) = (Vec::<(K, Vec<V>)>::new(), HashMap::new());
    for (key, item) in items {
        let place = *places.entry(key).or_insert_with_key(|key| {
            groups.push((key.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(item);
    }
    groups
}

/// Returns a number with the word for one or for several things, such as `3 more columns`.
pub fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns a number of particles in words.
pub fn particles(count: i64) -> String {
    counted(count as usize, "particle", "particles")
}

/// Returns a text with a capital first letter.
pub fn capital(text: &str) -> String {
    let first = text.chars().next().map_or(0, char::len_utf8);
    text[..first].to_uppercase() + &text[first..]
}

/// Returns a text with line breaks between words, so that its lines have at most `width` characters if words permit. All
/// lines but the first are indented.
pub fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if used + length > width && used > 2 {
            lines.truncate(lines.trim_end_matches(' ').len());
            lines += "\n  ";
            used = 2;
            // Two spaces that divide numbers would indent the line further.
            if length == 0 {
                continue;
            }
        }
        lines += word;
        used += word.chars().count();
    }
    lines
}

/// A mistake of the user on the command line, with exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_items_keep_their_order() {
        let groups = grouped([("b", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5)]);
        assert_eq!(groups, [("b", vec![1, 3]), ("a", vec![2, 4]), ("c", vec![5])]);
    }

    #[test]
    fn long_lines_break_between_words() {
        assert_eq!(
            wrapped("epoch 1/9  loss 0.4641  accuracy 90.00 %", 24),
            "epoch 1/9  loss 0.4641\n  accuracy 90.00 %"
        );
        assert_eq!(wrapped("run: results/a-very-long-folder", 12), "run:\n  results/a-very-long-folder");
        assert_eq!(wrapped("short", 80), "short");
    }
}
