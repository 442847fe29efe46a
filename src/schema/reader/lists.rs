//! Reads lists. Each item that breaks the rule is reported separately, as `key[0]`.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::field::State;
use super::{Field, Reader, text, word, word_rule};
use crate::schema::bounds::{self, Bounds};
use crate::schema::choice::Choice;
use crate::schema::node::{Node, Value};

/// A command of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments.
    Program(Vec<String>),
}

/// Shows the command in one line. Characters that a terminal would obey or hide are shown by their numbers.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            CommandLine::Shell(line) => line.clone(),
            CommandLine::Program(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        };
        text.chars().try_for_each(|one| match one {
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                write!(f, "{}", one.escape_unicode())
            }
            one if one.is_control() => write!(f, "{}", one.escape_default()),
            one => write!(f, "{one}"),
        })
    }
}

/// Returns a word in quotes if it has none of the usual characters of a word.
fn quoted(word: &str) -> String {
    let is_plain = |one: char| one.is_alphanumeric() || "-_./=:,+@%".contains(one);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

impl Reader<'_> {
    /// Reads a list of at least one number, each within `bounds`.
    pub fn floats(&self, key: &str, bounds: Bounds) -> Field<Vec<f64>> {
        let rule = bounds.rule().full();
        self.list(key, format!("a list, each {rule}"), |v| bounds.check(v))
    }

    /// Reads one number or a list of at least one number, each within `bounds`.
    pub fn floats_or_one(&self, key: &str, bounds: Bounds) -> Field<Vec<f64>> {
        if let Some(Node { value: Value::Array(_), .. }) = self.node(key) {
            return self.floats(key, bounds);
        }
        let rule = format!("{}, or a list of such", bounds.rule().full());
        self.field(key, rule.clone(), |value| match value {
            Value::Integer(_) | Value::Float(_) => bounds.check(value).map(|x| vec![x]),
            _ => Err(format!("must be {rule}")),
        })
    }

    /// Reads a list of at least one number, each within `bounds`, or a word, which gives `None`.
    pub fn floats_or_word(&self, key: &str, word: &str, bounds: Bounds) -> Field<Option<Vec<f64>>> {
        if let Some(Node { value: Value::Array(_), .. }) = self.node(key) {
            return self.floats(key, bounds).map(Some);
        }
        let rule = format!("\"{word}\", or a list, each {}", bounds.rule().full());
        self.field(key, rule.clone(), |value| match value {
            Value::String(given) if given == word => Ok(None),
            _ => Err(format!("must be {rule}")),
        })
    }

    /// Reads a list of at least one whole number, each within `range`.
    pub fn integers(&self, key: &str, range: RangeInclusive<i64>) -> Field<Vec<i64>> {
        let rule = bounds::range_rule(&range, i64::MIN, i64::MAX);
        self.list(key, format!("a list, each {}", rule.full()), |value| match value {
            Value::Integer(i) if range.contains(i) => Ok(*i),
            Value::Integer(_) => Err(rule.must_fit()),
            _ => Err(rule.must_be()),
        })
    }

    /// Reads a list of at least one text, none of them empty.
    pub fn strings(&self, key: &str) -> Field<Vec<String>> {
        self.list(key, "a list of texts in quotes".to_owned(), text)
    }

    /// Reads a command: one text for the shell, or a list of a program and its arguments.
    pub fn command(&self, key: &str) -> Field<CommandLine> {
        let rule = "a shell command in quotes, or a list of a program and its arguments";
        if let Some(Node { value: Value::Array(_), .. }) = self.node(key) {
            return self.list(key, rule.to_owned(), text).map(CommandLine::Program);
        }
        self.field(key, rule.to_owned(), |value| match value {
            Value::String(_) => text(value).map(CommandLine::Shell),
            _ => Err(format!("must be {rule}")),
        })
    }

    /// Reads a list of at least one of the words of `E`.
    pub fn choices<E: Choice>(&self, key: &str) -> Field<Vec<E>> {
        self.list(key, format!("a list, each {}", word_rule::<E>()), word::<E>)
    }

    /// Reads a list whose items must pass `check`. Each item that does not is reported separately.
    fn list<T>(&self, key: &str, rule: String, check: impl Fn(&Value) -> Result<T, String>) -> Field<Vec<T>> {
        let Some(node) = self.node(key) else {
            return self.field(key, rule, |_| Ok(Vec::new()));
        };
        let items = match &node.value {
            Value::Array(items) if !items.is_empty() => items,
            Value::Array(_) => {
                return self.field(key, rule, |_| Err("must not be empty".to_owned()));
            }
            _ => {
                let why = format!("must be {rule}");
                return self.field(key, rule, |_| Err(why));
            }
        };
        let mut values = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match check(&item.value) {
                Ok(value) => values.push(value),
                Err(why) => self.complain(&format!("{}[{i}]", self.dotted(key)), item, &why),
            }
        }
        let complete = values.len() == items.len();
        let state = if complete { State::Present(values) } else { State::Bad };
        self.with_state(key, rule, state)
    }
}
