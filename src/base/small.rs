//! Small helpers for lists, texts and paths as users write them, the user's cache folder (`$BELLA_CACHE`, else
//! `$XDG_CACHE_HOME/bella`, else `~/.cache/bella`), and the mistakes of the user.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};

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

/// A number in its order, for sort keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Returns a text of at most `most` characters, at least 1; where something is cut off, the last one, `…`, says so.
pub fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.to_string(),
        false => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Returns a number with the word for one or for several things, such as `3 more columns`.
pub fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns whether a formatted number shows no digit but zeros.
pub fn shows_zero(text: &str) -> bool {
    !text.contains(|digit| ('1'..='9').contains(&digit))
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

/// Returns a word of a command as it can be pasted into a shell: in quotes if it has others than the usual characters of a word.
pub fn for_shell(word: &str) -> String {
    let is_plain = |one: char| one.is_alphanumeric() || "-_./=:,+@%".contains(one);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
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

/// The starts of names that stand where a path may stand: a repository of the Hub, an archive of OpenAI's.
pub const SCHEMES: [&str; 2] = ["hf://", "openai://"];

/// Returns an expanded path from the root, so that it means the same in every folder. A name stays as it is.
///
/// # Errors
/// Fails as [`expanded`] does.
pub fn absolute(path: &str) -> Result<PathBuf, String> {
    if SCHEMES.iter().any(|scheme| path.starts_with(scheme)) {
        return Ok(PathBuf::from(path));
    }
    expanded(path).map(|path| std::path::absolute(&path).unwrap_or(path))
}

/// Returns a path in which `~` at the start stands for the home folder, and `$NAME` or `${NAME}` for a variable of the
/// environment, as shells read it. `~name` and a `$` before anything else are kept, and so is a path that exists as it is
/// written: names may have such characters.
///
/// # Errors
/// Fails with the reason if a variable is not set.
pub fn expanded(path: &str) -> Result<PathBuf, String> {
    if Path::new(path).exists() {
        return Ok(PathBuf::from(path));
    }
    expanded_by(path, &|name| std::env::var(name).ok())
}

fn expanded_by(path: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let value = |name: &str| variable(name).ok_or_else(|| format!("the variable {name} of the environment is not set"));
    let (mut done, mut rest) = (String::new(), path);
    if let Some(below) = path.strip_prefix('~').filter(|below| below.is_empty() || below.starts_with('/')) {
        done = value("HOME")?;
        rest = below;
    }
    while let Some((before, after)) = rest.split_once('$') {
        done += before;
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let plain = after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len()));
        let (name, behind) = braced.unwrap_or(plain);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_part) {
            done.push('$');
            rest = after;
            continue;
        }
        done += &value(name)?;
        rest = behind;
    }
    Ok(PathBuf::from(done + rest))
}

/// Returns the cache folder; `None` if the environment names none.
pub fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("BELLA_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("bella")))
        .or_else(|| variable("HOME").map(|folder| folder.join(".cache/bella")))
}

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

    #[test]
    fn paths_are_expanded_as_in_a_shell() {
        let variable = |name: &str| match name {
            "HOME" => Some("/home/me".to_string()),
            "DATA" => Some("/data".to_string()),
            _ => None,
        };
        let expand = |path: &str| expanded_by(path, &variable).map(|path| path.to_string_lossy().into_owned());
        for (path, expected) in [
            ("~/a", "/home/me/a"),
            ("~", "/home/me"),
            ("~you/a", "~you/a"),
            ("a~/b", "a~/b"),
            ("$DATA/x", "/data/x"),
            ("${DATA}-2/$HOME", "/data-2//home/me"),
            ("a$/b", "a$/b"),
            ("cost$5", "cost$5"),
            ("${DA TA}", "${DA TA}"),
        ] {
            assert_eq!(expand(path).as_deref(), Ok(expected), "{path}");
        }
        assert_eq!(expand("$NONE/x").unwrap_err(), "the variable NONE of the environment is not set");
    }
    #[test]
    fn a_path_that_exists_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let odd = place.path().join("$BELLA_NOWHERE");
        assert!(expanded(odd.to_str().unwrap()).is_err());
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(expanded(odd.to_str().unwrap()).unwrap(), odd);
    }
}
