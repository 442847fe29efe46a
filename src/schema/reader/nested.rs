//! Descends into tables (sections, and tables that hold exactly one of several variants) and reads lists. Each item of a list
//! that breaks the rule is reported separately, as `key[0]`.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::field::State;
use super::{Field, Reader, Source, checked, text, word, word_rule};
use crate::base::small::for_shell;
use crate::schema::bounds::Bounds;
use crate::schema::choice::Choice;
use crate::schema::node::{Node, Value};
use crate::schema::survey::Given;
use crate::schema::{bounds, choice};

impl<'a> Reader<'a> {
    /// Returns whether `key` is given, with any value.
    pub fn has(&self, key: &str) -> bool {
        self.survey
            .as_ref()
            .map_or(self.node(key).is_some(), |survey| survey.assumes(self.dotted(key), survey.given != Given::Nothing))
    }

    /// Returns whether `key`, which has been read, is given with another value than its default. The config that a run saves states
    /// the defaults of absent keys, so a rule about keys that mean nothing beside others asks this, and not whether they are given.
    pub fn sets(&self, key: &str) -> bool {
        self.has(key) && !self.shared.usual.borrow().contains(&self.dotted(key))
    }

    /// Returns whether the value at `key` satisfies `of`. A survey answers by the kind of value that it assumes as
    /// given.
    fn is(&self, key: &str, given: Given, of: fn(&Value) -> bool) -> bool {
        let node = self.node(key);
        self.survey.as_ref().map_or(node.is_some_and(|node| of(&node.value)), |survey| {
            survey.assumes(self.dotted(key), survey.given == given)
        })
    }

    /// Returns whether `key` is given as a table.
    pub fn is_table(&self, key: &str) -> bool {
        self.is(key, Given::Table, |value| matches!(value, Value::Table(_)))
    }

    /// Returns whether `key` is given as a text.
    pub fn is_text(&self, key: &str) -> bool {
        self.is(key, Given::Text, |value| matches!(value, Value::String(_)))
    }

    /// Returns whether `key` is given as a list.
    pub fn is_list(&self, key: &str) -> bool {
        self.is(key, Given::List, |value| matches!(value, Value::Array(_)))
    }

    /// Returns a reader of the table at `key`. If the table is absent, the reader finds no keys.
    pub fn section(&self, key: &str) -> Reader<'a> {
        let path = self.dotted(key);
        let source = match self.node(key) {
            Some(node) => self.table_of(&path, node),
            None => match &self.source {
                Source::Bad(origin) => Source::Bad(origin.clone()),
                _ => Source::Missing(self.origin()),
            },
        };
        self.below(path, source)
    }

    /// Reads the table at `key`.
    pub fn table<T>(&self, key: &str, read: impl FnOnce(&Reader) -> T) -> T {
        let table = self.section(key);
        let value = read(&table);
        table.finish();
        value
    }

    /// Reads the table at `key`, if it is given.
    pub fn table_if_given<T>(&self, key: &str, read: impl FnOnce(&Reader) -> T) -> Option<T> {
        self.has(key).then(|| self.table(key, read))
    }

    /// Reads the only sub-table of `key`, such as `[method.svgd]` of `method`. Returns its name, which is one of
    /// `known`, and a reader. A mistake is recorded if there is no sub-table, several, one of another name, or
    /// something other than a table.
    pub fn one_of(&self, key: &str, known: &[&str]) -> Option<(String, Reader<'a>)> {
        let path = self.dotted(key);
        if let Some(survey) = &self.survey {
            let name = survey.variant(key, known)?;
            return Some((name.to_owned(), self.below(format!("{path}.{name}"), self.source.clone())));
        }
        let Some(node) = self.node(key) else {
            if !matches!(self.source, Source::Bad(_)) {
                self.push(self.origin().whole(), format!("{path} is required: one of {}", headers(&path, known)));
            }
            return None;
        };
        let Value::Table(variants) = &node.value else {
            let written = match &node.value {
                Value::String(word) if known.contains(&word.as_str()) => format!("write [{path}.{word}]"),
                _ => format!("one of {}", headers(&path, known)),
            };
            self.complain(&path, node, &format!("must be a table: {written}"));
            return None;
        };
        let (usable, others): (Vec<_>, Vec<_>) = variants.iter().partition(|(name, _)| known.contains(&name.as_str()));
        for (name, node) in others {
            let hint = choice::hint(name, known.iter().copied());
            self.push(node.origin.clone(), format!("unknown {key} `{name}`; known: {}{hint}", known.join(", ")));
        }
        if variants.is_empty() {
            self.complain(&path, node, &format!("needs one of {}", headers(&path, known)));
        }
        if usable.len() > 1 {
            self.report_several(&path, &usable);
        }
        match usable[..] {
            [(name, node)] if variants.len() == 1 => {
                let path = format!("{path}.{name}");
                let source = self.table_of(&path, node);
                Some((name.clone(), self.below(path, source)))
            }
            _ => None,
        }
    }

    /// Reports that all of `given` are present, at the one written last.
    fn report_several(&self, path: &str, given: &[(&String, &Node)]) {
        let headers: Vec<String> = given.iter().map(|(n, _)| format!("[{path}.{n}]")).collect();
        let all = if headers.len() == 2 { "both" } else { "all" };
        let text = format!("{} are {all} given: choose one", headers.join(" and "));
        let last = given.iter().map(|(_, node)| &node.origin).max();
        self.push(last.cloned().unwrap_or_else(|| self.origin()), text);
    }

    fn table_of(&self, path: &str, node: &'a Node) -> Source<'a> {
        match &node.value {
            Value::Table(table) => Source::Table(table, node.origin.clone()),
            _ => {
                let why = format!("must be a table: write [{path}] and its keys below");
                self.complain(path, node, &why);
                Source::Bad(node.origin.clone())
            }
        }
    }
}

fn headers(path: &str, known: &[&str]) -> String {
    let headers: Vec<String> = known.iter().map(|n| format!("[{path}.{n}]")).collect();
    headers.join(", ")
}

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
            CommandLine::Program(words) => words.iter().map(|word| for_shell(word)).collect::<Vec<_>>().join(" "),
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

    /// Reads a list of at least one of the words of `E`, each of them once.
    pub fn choices<E: Choice>(&self, key: &str) -> Field<Vec<E>> {
        let named = RefCell::new(Vec::new());
        self.list(key, format!("a list, each {}", word_rule::<E>()), |value| {
            let choice = word::<E>(value)?;
            if named.borrow().contains(&choice) {
                return Err("is in the list already: leave it out".to_owned());
            }
            named.borrow_mut().push(choice);
            Ok(choice)
        })
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
            match checked(&item.value, &check) {
                Ok(value) => values.push(value),
                Err(why) => self.complain(&format!("{}[{i}]", self.dotted(key)), item, &why),
            }
        }
        let complete = values.len() == items.len();
        let state = if complete { State::Present(values) } else { State::Bad };
        self.with_state(key, rule, state)
    }
}
