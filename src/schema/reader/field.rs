//! The outcome of reading one key: a value, nothing, or a mistake that has been recorded.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;

use crate::base::small::capital;
use crate::schema::node::{Origin, Problems};
use crate::schema::survey::Note;

/// What all readers of one config record.
#[derive(Debug, Default)]
pub struct Record {
    pub problems: RefCell<Problems>,
    /// The dotted keys that are given with the value that they have by default.
    pub usual: RefCell<BTreeSet<String>>,
}

pub type Shared = Rc<Record>;

/// The content of a key.
#[derive(Debug)]
pub enum State<T> {
    Present(T),
    Absent,
    /// The value is bad, and the mistake has been recorded.
    Bad,
}

/// The outcome of reading one key. A method such as `or` or `required` decides what an absent key means.
#[must_use]
#[derive(Debug)]
pub struct Field<T> {
    state: State<T>,
    place: (Origin, String),
    rule: String,
    shared: Shared,
    note: Option<Note>,
}

impl<T> Field<T> {
    /// `place` is the origin of the enclosing table and the dotted key. `rule` states what the value must be.
    pub(super) fn new(
        state: State<T>,
        place: (Origin, String),
        rule: String,
        shared: Shared,
        note: Option<Note>,
    ) -> Field<T> {
        Field { state, place, rule, shared, note }
    }

    /// Describes the key in one sentence, which [`Survey`](crate::schema::Survey)s collect.
    pub fn about(self, about: &'static str) -> Field<T> {
        self.note.iter().for_each(|note| note.about(about));
        self
    }

    /// Returns the value, or `default` if the key is absent or was reported.
    pub fn or(self, default: T) -> T
    where
        T: Serialize,
    {
        self.or_else(|| default)
    }

    /// Returns the value, or the result of `default` if the key is absent or was reported.
    pub fn or_else(self, default: impl FnOnce() -> T) -> T
    where
        T: Serialize,
    {
        let default = default();
        let written = |value: &T| toml::Value::try_from(value).ok();
        match self.state {
            State::Present(value) => {
                if written(&value) == written(&default) {
                    self.shared.usual.borrow_mut().insert(self.place.1);
                }
                value
            }
            State::Absent | State::Bad => {
                self.note.iter().for_each(|note| note.default(&default));
                default
            }
        }
    }

    /// Returns the value, or `None` if the key is absent or was reported.
    pub fn optional(self) -> Option<T> {
        match self.state {
            State::Present(value) => Some(value),
            State::Absent | State::Bad => None,
        }
    }

    /// Returns the value. An absent key is a mistake, explained by the rule for the value.
    pub fn required(self) -> T
    where
        T: Default,
    {
        self.required_by_rule(T::default())
    }

    /// Returns the value like `required`, for types without a default. `stand_in` has the meaning that it has in
    /// [`required_or`](Self::required_or).
    pub fn required_by_rule(self, stand_in: T) -> T {
        let why = self.rule.clone();
        self.required_or(stand_in, &why)
    }

    /// Returns the value. An absent key is a mistake, explained by `why`.
    pub fn required_because(self, why: &str) -> T
    where
        T: Default,
    {
        self.required_or(T::default(), why)
    }

    /// Returns the value like `required_because`, for types without a default. `stand_in` is returned if there is none;
    /// it is never used, because a config with mistakes is refused.
    pub fn required_or(self, stand_in: T, why: &str) -> T {
        if let Some(note) = &self.note {
            note.required();
            note.otherwise_about(&format!("{}.", capital(why)));
        }
        if let State::Absent = self.state {
            let (origin, path) = &self.place;
            let text = format!("{path} is required: {why}");
            self.shared.problems.borrow_mut().push(origin.clone(), text);
        }
        self.optional().unwrap_or(stand_in)
    }

    /// Applies `f` to a value that is present.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Field<U> {
        let state = match self.state {
            State::Present(value) => State::Present(f(value)),
            State::Absent => State::Absent,
            State::Bad => State::Bad,
        };
        Field::new(state, self.place, self.rule, self.shared, self.note)
    }
}
