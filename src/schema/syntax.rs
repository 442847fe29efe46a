//! Parses TOML text and `--set` arguments to tables whose values know their origin.

use toml::de::{DeTable, DeValue};

use super::node::{Node, Origin, SET, Table, Value};
use super::node::{Problems, excerpt, one_line};

/// The text being converted and the origin of its values.
struct Source<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    origin: &'a Origin,
}

impl<'a> Source<'a> {
    fn new(text: &'a str, origin: &'a Origin) -> Source<'a> {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Source { text, line_starts: std::iter::once(0).chain(breaks).collect(), origin }
    }

    /// Returns the origin of the byte at `at`.
    fn origin_at(&self, at: usize) -> Origin {
        match self.origin {
            Origin::File { order, file, .. } => Origin::File {
                order: *order,
                file: file.clone(),
                line: self.line_starts.partition_point(|&start| start <= at),
            },
            Origin::Set { order, option } => Origin::Set { order: *order, option },
        }
    }

    /// Returns the text of the line that holds the byte at `at`.
    fn line_at(&self, at: usize) -> &str {
        let line = self.line_starts.partition_point(|&start| start <= at);
        let start = self.line_starts.get(line.saturating_sub(1));
        let rest = start.and_then(|&start| self.text.get(start..));
        rest.and_then(|rest| rest.lines().next()).unwrap_or("")
    }

    fn table(&self, table: &DeTable<'_>) -> Table {
        let entries = table.iter().map(|(key, value)| {
            let node = self.node(value.get_ref(), key.span().start, value.span());
            (key.get_ref().to_string(), node)
        });
        entries.collect()
    }

    /// Converts the value written at `span`. Its origin is the line of the byte at `at`.
    fn node(&self, value: &DeValue<'_>, at: usize, span: std::ops::Range<usize>) -> Node {
        let origin = self.origin_at(at);
        let written = match value {
            DeValue::Table(_) => String::new(),
            _ => excerpt(self.text.get(span).unwrap_or("")),
        };
        let value = match value {
            DeValue::Table(table) => Value::Table(self.table(table)),
            DeValue::Array(items) => Value::Array(
                items.iter().map(|item| self.node(item.get_ref(), item.span().start, item.span())).collect(),
            ),
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(flag) => Value::Boolean(*flag),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).map_or(Value::Huge, Value::Integer)
            }
        };
        Node { value, written, origin }
    }
}

/// Parses a TOML text. If it has syntax errors, they are recorded (one per line of the text) and the result is `None`.
pub fn parse_file(text: &str, origin: &Origin, problems: &mut Problems) -> Option<Table> {
    let source = Source::new(text, origin);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(source.table(table.get_ref()));
    }
    let written = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let mut lines = text.lines().map(str::trim).filter(written);
    let is_toml = |line: &str| line.starts_with('[') || line.contains('=');
    if let Some(first) = lines.clone().next().filter(|_| !lines.any(is_toml)) {
        let text = format!("no TOML: has neither [tables] nor key = value, and begins with `{}`", excerpt(first));
        problems.push(source.origin_at(0), text);
        return None;
    }
    let mut last_line = None;
    for error in errors {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let place = source.origin_at(at);
        // One slip often causes further errors on the same line.
        if last_line.replace(place.clone()) == Some(place.clone()) {
            continue;
        }
        let written = excerpt(source.line_at(at));
        let message = one_line(error.message());
        problems.push(place, format!("not valid TOML: {message}, in `{written}`"));
    }
    None
}

/// Parses `a.b.c=value` to a table. If this fails, the reason is recorded and the result is `None`. A value that is not
/// TOML is taken as text, so that words and paths need no quotes.
pub fn parse_set(argument: &str, order: usize, problems: &mut Problems) -> Option<Table> {
    let origin = Origin::Set { order, option: SET };
    let mut fail = |why: &str| {
        let text = format!("`{}`: {why}", excerpt(argument));
        problems.push(origin.clone(), text);
    };
    let Some((key, text)) = argument.split_once('=') else {
        fail("must be key=value, such as train.epochs=3");
        return None;
    };
    let (key, text) = (key.trim(), text.trim());
    let Some(path) = parse_key(key) else {
        fail("the key before `=` must be dotted words, such as train.epochs");
        return None;
    };
    if text.is_empty() {
        fail("has no value after `=`; an empty text is '\"\"'");
        return None;
    }
    let value = match DeValue::parse(text) {
        Ok(value) => Source::new(text, &origin).node(value.get_ref(), 0, 0..text.len()),
        Err(error) if text.starts_with(['[', '{', '"', '\'']) => {
            let message = one_line(error.message());
            fail(&format!("the value is not valid TOML: {message}"));
            return None;
        }
        Err(_) => Node { value: Value::String(text.to_owned()), written: excerpt(text), origin: origin.clone() },
    };
    let nested = path.into_iter().rev().fold(value, |node, key| Node {
        value: Value::Table(Table::from([(key, node)])),
        written: String::new(),
        origin: origin.clone(),
    });
    match nested.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

/// Splits a dotted key into its words by TOML's own rules, so that a word may be quoted.
fn parse_key(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '\r']) {
        return None;
    }
    let document = format!("{key} = 0");
    let table = DeTable::parse(&document).ok()?;
    let mut path = Vec::new();
    let mut table = table.get_ref();
    loop {
        let (key, value) = table.iter().next()?;
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}
