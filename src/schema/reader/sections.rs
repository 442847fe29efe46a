//! Descends into tables: sections, and tables that hold exactly one of several variants.

use super::{Reader, Source};
use crate::schema::node::{Node, Value};
use crate::schema::suggest;
use crate::schema::survey::Given;

impl<'a> Reader<'a> {
    /// Returns whether `key` is given, with any value.
    pub fn has(&self, key: &str) -> bool {
        self.survey
            .as_ref()
            .map_or(self.node(key).is_some(), |survey| survey.assumes(self.dotted(key), survey.given != Given::Nothing))
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
            let hint = suggest::hint(name, known.iter().copied());
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
