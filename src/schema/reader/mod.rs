//! A cursor on one table of the config tree, which checks values as they are read and collects every mistake. The code
//! of a section asks for its keys and then calls `finish`, which reports the keys that nobody asked for.

mod field;
mod nested;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::rc::Rc;

use super::bounds::{self, Bounds};
use super::choice::Choice;
use super::choice::hint;
use super::node::Problems;
use super::node::{Node, Origin, SET, Table, Value};
use super::survey::{Note, Survey};
use super::tree::Tree;
use crate::base::small::absolute;
pub use field::Field;
use field::{Shared, State};
pub use nested::CommandLine;

/// A cursor on one table. It must be `finish`ed; the root must be `close`d.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The dotted path of the table, empty for the root.
    path: String,
    source: Source<'a>,
    shared: Shared,
    asked: Rc<RefCell<BTreeSet<String>>>,
    /// Records every key if the reader only surveys keys.
    survey: Option<Rc<Survey>>,
    /// Whether it is a mistake to break a rule that connects keys ([`problem`](Self::problem)).
    minds_rules: bool,
    finished: bool,
}

/// The table that a reader reads from.
#[derive(Clone, Debug)]
enum Source<'a> {
    Table(&'a Table, Origin),
    /// The table is absent, so every key is absent. The origin is that of the enclosing table.
    Missing(Origin),
    /// The value is not a table. This has been reported, so every key reads as bad without another message.
    Bad(Origin),
}

impl<'a> Reader<'a> {
    /// Creates a cursor on the whole config.
    pub fn root(tree: &'a Tree) -> Reader<'a> {
        let origin = tree.root.origin.clone();
        let source = match &tree.root.value {
            Value::Table(table) => Source::Table(table, origin),
            _ => Source::Missing(origin),
        };
        Reader::new(String::new(), source, Shared::default(), None)
    }

    /// Creates a cursor without a config, whose keys are recorded in `survey`.
    pub fn surveyed(survey: &Rc<Survey>) -> Reader<'static> {
        Reader::new(
            String::new(),
            Source::Missing(Origin::Set { order: 0, option: SET }),
            Shared::default(),
            Some(survey.clone()),
        )
    }

    /// Returns whether keys are only recorded, because there is no config.
    pub fn is_surveyed(&self) -> bool {
        self.survey.is_some()
    }

    fn new(path: String, source: Source<'a>, shared: Shared, survey: Option<Rc<Survey>>) -> Reader<'a> {
        Reader { path, source, shared, asked: Rc::default(), survey, minds_rules: true, finished: false }
    }

    /// Creates a cursor on a table below this one.
    fn below(&self, path: String, source: Source<'a>) -> Reader<'a> {
        let mut below = Reader::new(path, source, self.shared.clone(), self.survey.clone());
        below.minds_rules = self.minds_rules;
        below
    }

    /// Creates a second cursor on this table, for settings that a finished training has followed: rules that connect keys may be younger than
    /// these settings, so that it is no mistake to break one. Keys, types, ranges and required keys are checked as ever.
    pub fn without_rules(&self) -> Reader<'a> {
        let mut same = self.below(self.path.clone(), self.source.clone());
        same.asked = self.asked.clone();
        same.minds_rules = false;
        // The first cursor reports the keys that nobody asked for.
        same.finished = true;
        same
    }

    /// Reads a whole number within `range`.
    pub fn integer(&self, key: &str, range: RangeInclusive<i64>) -> Field<i64> {
        let rule = bounds::range_rule(&range, i64::MIN, i64::MAX);
        self.field(key, rule.full(), |value| match value {
            Value::Integer(i) if range.contains(i) => Ok(*i),
            Value::Integer(_) => Err(rule.must_fit()),
            _ => Err(rule.must_be()),
        })
    }

    /// Reads a whole number within `range`, such as a number of things.
    pub fn count(&self, key: &str, range: RangeInclusive<usize>) -> Field<usize> {
        let rule = bounds::range_rule(&range, usize::MIN, usize::MAX);
        self.field(key, rule.full(), |value| match value {
            Value::Integer(i) => usize::try_from(*i).ok().filter(|i| range.contains(i)).ok_or_else(|| rule.must_fit()),
            _ => Err(rule.must_be()),
        })
    }

    /// Reads a count within `range`. `None` stands for the word "auto".
    pub fn count_or_auto(&self, key: &str, range: RangeInclusive<usize>) -> Field<Option<usize>> {
        let rule = bounds::range_rule(&range, usize::MIN, usize::MAX);
        let or_auto = |rule: String| format!("{rule}, or \"auto\"");
        self.field(key, or_auto(rule.full()), |value| match value {
            Value::String(word) if word == "auto" => Ok(None),
            Value::Integer(i) => {
                let count = usize::try_from(*i).ok().filter(|i| range.contains(i));
                count.map(Some).ok_or_else(|| or_auto(rule.must_fit()))
            }
            _ => Err(or_auto(rule.must_be())),
        })
    }

    /// Reads a finite number within `bounds`. Whole numbers are accepted.
    pub fn float(&self, key: &str, bounds: Bounds) -> Field<f64> {
        self.field(key, bounds.rule().full(), |value| bounds.check(value))
    }

    /// Reads `true` or `false`.
    pub fn boolean(&self, key: &str) -> Field<bool> {
        self.field(key, "true or false".to_owned(), |value| match value {
            Value::Boolean(flag) => Ok(*flag),
            _ => Err("must be true or false, without quotes".to_owned()),
        })
    }

    /// Reads a text that is not empty.
    pub fn string(&self, key: &str) -> Field<String> {
        self.field(key, "a text in quotes".to_owned(), text)
    }

    /// Reads a path that is not empty. `~` and variables of the environment are expanded, and it is made absolute from the
    /// working folder, so that a stored config can be used from any folder. A name (`hf://…`) stays as it is.
    pub fn path(&self, key: &str) -> Field<PathBuf> {
        self.field(key, "a path in quotes".to_owned(), |value| absolute(&text(value)?))
    }

    /// Reads one of the words of `E`.
    pub fn choice<E: Choice>(&self, key: &str) -> Field<E> {
        self.field(key, word_rule::<E>(), word::<E>)
    }

    /// Reads one of these words.
    pub fn word_of(&self, key: &str, known: Vec<&'static str>) -> Field<&'static str> {
        let rule = format!("one of {}", known.join(", "));
        self.field(key, rule.clone(), |value| match value {
            Value::String(given) => known
                .iter()
                .copied()
                .find(|word| word == given)
                .ok_or_else(|| format!("must be {rule}{}", hint(given, known.iter().copied()))),
            _ => Err(format!("must be {rule}, in quotes")),
        })
    }

    /// Records that `key`, or this table if the key is absent, breaks a rule that connects it with other keys.
    pub fn problem(&self, key: &str, why: impl AsRef<str>) {
        match self.node(key).filter(|_| self.minds_rules) {
            Some(node) => self.complain(&self.dotted(key), node, why.as_ref()),
            None if self.minds_rules => self.missing(key, why),
            None => {}
        }
    }

    /// Records that `key` is absent, which other keys make a required one.
    pub fn missing(&self, key: &str, why: impl AsRef<str>) {
        if !matches!(self.source, Source::Bad(_)) {
            self.push(self.origin(), format!("{}: {}", self.dotted(key), why.as_ref()));
        }
    }

    /// Reports the keys that nobody asked for.
    pub fn finish(mut self) {
        self.finish_keys();
    }

    /// Finishes the root reader and returns `value` if there were no mistakes.
    ///
    /// # Errors
    /// Fails with all mistakes recorded by this reader and by the readers of its sections. Those must be finished first.
    pub fn close<T>(mut self, value: T) -> Result<T, Problems> {
        self.finish_keys();
        self.shared.problems.take().into_result(value)
    }

    fn finish_keys(&mut self) {
        self.finished = true;
        let Source::Table(table, _) = &self.source else {
            return;
        };
        let asked = self.asked.borrow();
        let known: Vec<&str> = asked.iter().map(String::as_str).collect();
        for (key, node) in table.iter().filter(|(key, _)| !asked.contains(*key)) {
            let why = if known.is_empty() {
                "unknown key: this table takes none".to_owned()
            } else {
                let hint = hint(key, known.iter().copied());
                format!("unknown key; known: {}{hint}", known.join(", "))
            };
            self.complain(&self.dotted(key), node, &why);
        }
    }

    /// Returns the value of `key`, which is recorded as asked for.
    fn node(&self, key: &str) -> Option<&'a Node> {
        self.asked.borrow_mut().insert(key.to_owned());
        match &self.source {
            Source::Table(table, _) => table.get(key),
            Source::Missing(_) | Source::Bad(_) => None,
        }
    }

    /// Reads `key` with `check`, whose error states what the value must be. `rule` states the same for a missing value.
    fn field<T>(&self, key: &str, rule: String, check: impl FnOnce(&Value) -> Result<T, String>) -> Field<T> {
        let state = match (self.node(key), &self.source) {
            (Some(node), _) => match checked(&node.value, check) {
                Ok(value) => State::Present(value),
                Err(why) => {
                    self.complain(&self.dotted(key), node, &why);
                    State::Bad
                }
            },
            (None, Source::Bad(_)) => State::Bad,
            (None, _) => State::Absent,
        };
        self.with_state(key, rule, state)
    }

    fn with_state<T>(&self, key: &str, rule: String, state: State<T>) -> Field<T> {
        let place = (self.origin().whole(), self.dotted(key));
        let note = self.survey.as_ref().map(|survey| Note::new(survey.clone(), self.dotted(key), rule.clone()));
        Field::new(state, place, rule, self.shared.clone(), note)
    }

    fn complain(&self, path: &str, node: &Node, why: &str) {
        let text = match node.value {
            Value::Table(_) => format!("{path}: {why}"),
            _ => format!("{path} = {}: {why}", node.written),
        };
        self.push(node.origin.clone(), text);
    }

    fn push(&self, origin: Origin, text: String) {
        self.shared.problems.borrow_mut().push(origin, text);
    }

    fn origin(&self) -> Origin {
        match &self.source {
            Source::Table(_, origin) | Source::Missing(origin) | Source::Bad(origin) => origin.clone(),
        }
    }

    fn dotted(&self, key: &str) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let key = if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { format!("{key:?}") };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }
}

/// Returns the rule for a value that must be a word of `E`.
fn word_rule<E: Choice>() -> String {
    format!("one of {}", E::list())
}

/// Checks a value. The reason against a whole number of more than 64 bits begins with that.
fn checked<T>(value: &Value, check: impl FnOnce(&Value) -> Result<T, String>) -> Result<T, String> {
    check(value).map_err(|why| if *value == Value::Huge { format!("does not fit into 64 bits: {why}") } else { why })
}

/// Converts a value to the choice that it names.
fn word<E: Choice>(value: &Value) -> Result<E, String> {
    let rule = word_rule::<E>();
    match value {
        Value::String(given) => E::of_word(given).ok_or_else(|| format!("must be {rule}{}", E::hint(given))),
        _ => Err(format!("must be {rule}, in quotes")),
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if !self.finished && !std::thread::panicking() {
            debug_assert!(false, "the reader of [{}] was not finished", self.path);
            self.finish_keys();
        }
    }
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if text.trim().is_empty() => Err("must not be empty".to_owned()),
        Value::String(text) => Ok(text.clone()),
        _ => Err("must be a text in quotes".to_owned()),
    }
}

#[cfg(test)]
mod tests;
