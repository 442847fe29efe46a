//! Surveys: reading without a config, to learn which keys the readers know. The code that reads an experiment runs as it is;
//! its readers stand on nothing and note each key with its rule, its default and its meaning.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;

/// One key as a reader asked for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Dotted.
    pub key: String,
    /// What the value has to be: type and range.
    pub rule: String,
    pub absence: Absence,
    /// One sentence; empty where the reader gives none.
    pub about: String,
}

/// The meaning of an absent key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absence {
    /// A mistake.
    Required,
    /// Nothing is set.
    Unset,
    /// This value, as TOML.
    Default(String),
}

/// What readers are told of keys whose kind they look at first. One survey for each finds all that they can ask for.
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

/// A survey under way. Of a table that holds one of several variants the one numbered `turn` is read, counted around.
#[derive(Debug)]
pub struct Survey {
    pub given: Given,
    turn: usize,
    /// A table with a number of its own, since defaults in other tables depend on its variant.
    leading: (&'static str, usize),
    asked: RefCell<Vec<Asked>>,
    /// Keys that were taken as given, of which nothing is learnt about their absence.
    assumed: RefCell<BTreeSet<String>>,
}

impl Survey {
    pub fn new(given: Given, turn: usize, leading: (&'static str, usize)) -> Rc<Survey> {
        Rc::new(Survey { given, turn, leading, asked: RefCell::default(), assumed: RefCell::default() })
    }

    /// The variant of the table `key` that is read, one of `known`.
    pub(super) fn variant<'k>(&self, key: &str, known: &[&'k str]) -> Option<&'k str> {
        let (table, number) = self.leading;
        let turn = if key == table { number } else { self.turn };
        known.get(turn % known.len().max(1)).copied()
    }

    /// Whether `key` is taken as given.
    pub(super) fn assumes(&self, key: String, given: bool) -> bool {
        if given {
            self.assumed.borrow_mut().insert(key);
        }
        given
    }

    /// Everything that was asked for, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }
}

/// The note of one key in a survey, completed as its reader says more of it.
#[derive(Clone, Debug)]
pub(super) struct Note {
    survey: Rc<Survey>,
    place: usize,
}

impl Note {
    pub fn new(survey: Rc<Survey>, key: String, rule: String) -> Note {
        let mut asked = survey.asked.borrow_mut();
        let known = asked.iter().position(|one| one.key == key);
        let place = known.unwrap_or(asked.len());
        if known.is_none() {
            asked.push(Asked { key, rule, absence: Absence::Unset, about: String::new() });
        }
        drop(asked);
        Note { survey, place }
    }

    /// The first meaning counts.
    pub fn about(&self, about: &str) {
        let mut asked = self.survey.asked.borrow_mut();
        if asked[self.place].about.is_empty() {
            asked[self.place].about = about.to_owned();
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
        // TOML has no word for "none", which is what "auto" stands for.
        let value = toml::Value::try_from(value).map_or("\"auto\"".to_owned(), |value| value.to_string());
        self.absent(Absence::Default(value));
    }
}

/// `text` with a capital letter.
pub(super) fn capital(text: &str) -> String {
    let first = text.chars().next().map_or(0, char::len_utf8);
    text[..first].to_uppercase() + &text[first..]
}
