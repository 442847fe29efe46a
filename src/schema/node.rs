//! The values of a config, each with its original text and the place where it was written, and the merging of one layer of a config
//! into another.
//!
//! The mistakes found in a config are kept with these places: one line each, sorted by file and line.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::base::outside::printable;

/// The entries of a table by key.
pub type Table = BTreeMap<String, Node>;

/// The place where a value was written. The order is that in which mistakes are listed: by file, by line, then the
/// `--set` arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Line `line` of the `order`-th file. Lines count from 1; 0 stands for the file as a whole.
    File { order: usize, line: usize, file: Arc<str> },
    /// The `order`-th override on the command line, given by this option.
    Set { order: usize, option: &'static str },
}

/// The option that overrides keys of a config.
pub const SET: &str = "--set";

impl Origin {
    /// Returns the same file without the line.
    pub fn whole(&self) -> Origin {
        match self {
            Origin::File { order, file, .. } => Origin::File { order: *order, file: file.clone(), line: 0 },
            Origin::Set { order, option } => Origin::Set { order: *order, option },
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line: 0, .. } => f.write_str(file),
            Origin::File { file, line, .. } => write!(f, "{file}:{line}"),
            Origin::Set { option, .. } => f.write_str(option),
        }
    }
}

/// A TOML value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Table(Table),
    Array(Vec<Node>),
    String(String),
    Integer(i64),
    /// A whole number that does not fit into 64 bits.
    Huge,
    Float(f64),
    Boolean(bool),
    Datetime,
}

/// A value with its text as written (on one line, shortened; empty for a table) and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub value: Value,
    pub written: String,
    pub origin: Origin,
}

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

/// One mistake: its place and one line of text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    origin: Origin,
    text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// All mistakes. They are displayed one per line, sorted by file, line and text.
#[derive(Clone, Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Records a mistake. `text` is put on one line.
    pub fn push(&mut self, origin: Origin, text: impl Into<String>) {
        let text = one_line(&text.into());
        self.0.push(Problem { origin, text });
    }

    /// Names `option` as the place of all mistakes in overrides by `--set` from the `from`-th on, which another option has given.
    pub fn given_by(mut self, option: &'static str, from: usize) -> Problems {
        for Problem { origin, .. } in &mut self.0 {
            if let Origin::Set { order, option: place } = origin
                && *place == SET
                && *order >= from
            {
                *place = option;
            }
        }
        self
    }

    /// Returns `value` if there were no mistakes.
    ///
    /// # Errors
    /// Fails with the recorded mistakes, if there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Problems> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Problem> = self.0.iter().collect();
        sorted.sort();
        sorted.dedup();
        for (i, problem) in sorted.into_iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Replaces line breaks and runs of blanks by one space and escapes other control characters.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" ")).into_owned()
}

/// Puts `text` on one line and cuts it to 60 characters.
pub fn excerpt(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = one_line(text);
    if line.chars().count() <= LONGEST {
        return line;
    }
    let head: String = line.chars().take(LONGEST - 1).collect();
    head + "…"
}
