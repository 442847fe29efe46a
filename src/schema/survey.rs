//! Surveys, which read without a config to learn the keys that the readers know. The code that reads an experiment runs
//! unchanged; its readers find no values and record each key with its rule, its default and its meaning.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use serde::Serialize;

/// One key that a reader asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The dotted key.
    pub key: String,
    /// The requirement on the value: its type and range.
    pub rule: String,
    pub absence: Absence,
    /// The meaning in one sentence. Empty if the reader gives none.
    pub about: String,
}

/// The meaning of an absent key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// The key is required.
    Required,
    /// The setting stays unset.
    Unset,
    /// The default value, as TOML.
    Default(String),
}

/// The kind of value that a survey assumes for keys whose kind the readers check first. One survey with each kind finds
/// every key that they can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Nothing,
    Table,
    Text,
    List,
}

impl Given {
    pub const ALL: [Given; 4] = [Given::Nothing, Given::Table, Given::Text, Given::List];
}

/// A survey in progress. In a table that holds one of several variants, variant `turn` is read, counted modulo their
/// number.
#[derive(Debug)]
pub struct Survey {
    pub given: Given,
    turn: usize,
    leading: Leading,
    asked: RefCell<Vec<Asked>>,
    /// The place of each key in `asked`.
    places: RefCell<HashMap<String, usize>>,
    /// The keys that were assumed as given. The survey learns nothing about their absence.
    assumed: RefCell<BTreeSet<String>>,
}

/// A table whose variant has a number of its own, because defaults in other tables depend on it.
#[derive(Debug)]
pub struct Leading {
    pub table: &'static str,
    /// The place of the variant among those of the table.
    pub variant: usize,
}

impl Survey {
    pub fn new(given: Given, turn: usize, leading: Leading) -> Rc<Survey> {
        Rc::new(Survey {
            given,
            turn,
            leading,
            asked: RefCell::default(),
            places: RefCell::default(),
            assumed: RefCell::default(),
        })
    }

    /// Returns the variant of the table `key` that is read, one of `known`.
    pub(super) fn variant<'k>(&self, key: &str, known: &[&'k str]) -> Option<&'k str> {
        let turn = if key == self.leading.table { self.leading.variant } else { self.turn };
        known.get(turn % known.len().max(1)).copied()
    }

    /// Returns whether `key` is assumed as given. If so, it is recorded.
    pub(super) fn assumes(&self, key: String, given: bool) -> bool {
        if given {
            self.assumed.borrow_mut().insert(key);
        }
        given
    }

    /// Takes all keys that were asked for, in order.
    pub fn take_asked(&self) -> Vec<Asked> {
        self.places.take();
        self.asked.take()
    }

    /// Returns the place of `key` among what was asked for, where a key that is new has this rule.
    fn place(&self, key: String, rule: String) -> usize {
        let mut asked = self.asked.borrow_mut();
        *self.places.borrow_mut().entry(key).or_insert_with_key(|key| {
            asked.push(Asked { key: key.clone(), rule, absence: Absence::Unset, about: String::new() });
            asked.len() - 1
        })
    }
}

/// The entry of one key in a survey, completed while its reader describes it.
#[derive(Clone, Debug)]
pub(super) struct Note {
    survey: Rc<Survey>,
    place: usize,
}

impl Note {
    pub fn new(survey: Rc<Survey>, key: String, rule: String) -> Note {
        let place = survey.place(key, rule);
        Note { survey, place }
    }

    /// Sets the meaning. Of a key that two readers of a table share, the one that reads it last says what it means: the data set, not
    /// what all data sets have.
    pub fn about(&self, about: &str) {
        self.survey.asked.borrow_mut()[self.place].about = about.to_owned();
    }

    /// Sets the meaning, unless it has been set before.
    pub fn otherwise_about(&self, about: &str) {
        if self.survey.asked.borrow()[self.place].about.is_empty() {
            self.about(about);
        }
    }

    pub fn required(&self) {
        self.absent(Absence::Required);
    }

    fn absent(&self, absence: Absence) {
        let one = &mut self.survey.asked.borrow_mut()[self.place];
        if !self.survey.assumed.borrow().contains(&one.key) {
            one.absence = absence;
        }
    }

    pub fn default(&self, value: &impl Serialize) {
        // TOML has no null, so `None` is written as "auto".
        let value = toml::Value::try_from(value).map_or("\"auto\"".to_owned(), |value| value.to_string());
        self.absent(Absence::Default(value));
    }
}
