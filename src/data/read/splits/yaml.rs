//! A tree of YAML, in which every value that is no list and no mapping is a text.

use anyhow::{Context, Result, bail, ensure};
use saphyr_parser::{Event, Parser, ScalarStyle};

/// The most lists and mappings that may lie in each other.
const DEEPEST: usize = 64;

/// A value of YAML.
#[derive(Debug, PartialEq)]
pub enum Node {
    /// Nothing, `null` or `~`.
    Null,
    Text(String),
    List(Vec<Node>),
    /// The values of a mapping by their keys, in order.
    Mapping(Vec<(String, Node)>),
    /// A reference to a value that stands elsewhere, which is not followed.
    Alias,
}

impl Node {
    /// Returns the value of a key; `None` where this is no mapping or does not have the key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Node::Mapping(entries) = self else { return None };
        entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }
}

/// A list or a mapping that has not ended.
enum Open {
    List(Vec<Node>),
    /// With the key whose value comes next.
    Mapping(Vec<(String, Node)>, Option<String>),
}

impl Open {
    /// Takes the next value in; in a mapping, keys and values take turns.
    fn push(&mut self, node: Node) -> Result<()> {
        match self {
            Open::List(items) => items.push(node),
            Open::Mapping(entries, key) => match (key.take(), node) {
                (Some(key), node) => entries.push((key, node)),
                (None, Node::Text(text)) => {
                    ensure!(entries.iter().all(|(known, _)| *known != text), "has the key `{text}` twice");
                    *key = Some(text);
                }
                (None, _) => bail!("has a key that is no text"),
            },
        }
        Ok(())
    }
}

/// Reads a document.
///
/// # Errors
/// Fails with the rest of a sentence about the document if it is no YAML, if a mapping has a key twice or one that is no text, or if it is too deep.
pub fn read(text: &str) -> Result<Node> {
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<Open> = Vec::new();
    while let Some(event) = parser.next_event() {
        let (event, _) = event.context("is no YAML")?;
        let node = match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                ensure!(open.len() < DEEPEST, "has more than {DEEPEST} lists and mappings in each other");
                let is_list = matches!(event, Event::SequenceStart(..));
                open.push(if is_list { Open::List(Vec::new()) } else { Open::Mapping(Vec::new(), None) });
                continue;
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) if ["", "~", "null", "Null", "NULL"].contains(&&*text) => {
                Node::Null
            }
            Event::Scalar(text, ..) => Node::Text(text.into_owned()),
            Event::Alias(_) => Node::Alias,
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(items)) => Node::List(items),
                Some(Open::Mapping(entries, _)) => Node::Mapping(entries),
                None => bail!("is no YAML"),
            },
            _ => continue,
        };
        match open.last_mut() {
            Some(outer) => outer.push(node)?,
            None => return Ok(node),
        }
    }
    Ok(Node::Null)
}
