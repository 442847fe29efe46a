//! Reads the names of the classes of a folder's classifier from its config: `id2label` of transformers, `label_names` of timm.

use std::path::Path;

use serde_json::Value;

use super::preprocessing::beside;
use super::tokenizer::TOKENIZER;
use super::weights::{FILES, home};
use crate::base::files::read_json;

/// The start of the names that transformers gives to classes without one.
const NAMELESS: &str = "LABEL_";

/// Returns the names in the order of the logits; `None` where the config beside the weights at `path` names no classes.
pub fn class_names(path: &Path) -> Option<Vec<String>> {
    let named = |config: &Value| of_transformers(config).or_else(|| of_timm(config));
    beside(path, FILES).find_map(|(_, config)| named(&config)).or_else(|| named(&of_text_encoder(path)?))
}

/// Returns the config of an archive beside which a tokenizer lies. That of another archive may not be its own.
fn of_text_encoder(path: &Path) -> Option<Value> {
    let folder = home(path);
    let is_encoder = path.is_file() && folder.join(TOKENIZER[0]).is_file();
    is_encoder.then(|| read_json(&folder.join(FILES[0])).ok()).flatten()
}

fn of_transformers(config: &Value) -> Option<Vec<String>> {
    let names = config.get("id2label")?.as_object()?;
    let name = |number: usize| names.get(&number.to_string())?.as_str().map(String::from);
    let all: Vec<String> = (0..names.len()).map(name).collect::<Option<_>>()?;
    all.iter().any(|name| !name.starts_with(NAMELESS)).then_some(all)
}

fn of_timm(config: &Value) -> Option<Vec<String>> {
    config.get("label_names")?.as_array()?.iter().map(|name| name.as_str().map(String::from)).collect()
}

/// The classes of a classifier beside those of a data set.
#[derive(Debug, PartialEq)]
pub enum Agreement {
    /// Names and order are the same, apart from case and the marks between words.
    Same,
    /// The names are the same, but not their order: here are those of the classifier, in the words of the data set.
    OtherOrder(Vec<String>),
    /// The names differ: the first class that does.
    OtherNames(usize),
}

impl Agreement {
    /// Compares the names of a classifier with those of as many classes of a data set.
    pub fn of(classifier: &[String], data: &[String]) -> Agreement {
        let plain = |name: &String| name.to_lowercase().replace(['_', '-'], " ");
        let (left, right): (Vec<String>, Vec<String>) =
            (classifier.iter().map(plain).collect(), data.iter().map(plain).collect());
        let Some(first) = left.iter().zip(&right).position(|(one, other)| one != other) else { return Agreement::Same };
        let place = |name: &String| right.iter().position(|other| other == name).map(|place| data[place].clone());
        match left.iter().map(place).collect() {
            Some(ordered) => Agreement::OtherOrder(ordered),
            None => Agreement::OtherNames(first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split(',').map(String::from).collect()
    }

    #[test]
    fn orders_and_names_are_told_apart() {
        let of = |one, other| Agreement::of(&names(one), &names(other));
        assert_eq!(of("Polar Bear,cat", "polar_bear,cat"), Agreement::Same);
        assert_eq!(of("dog,Cat", "cat,dog"), Agreement::OtherOrder(names("dog,cat")));
        assert_eq!(of("tench,cat", "n01,cat"), Agreement::OtherNames(0));
    }

    #[test]
    fn names_come_from_either_package() {
        let of = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(of_transformers(&of(r#"{"id2label": {"1": "b", "0": "a"}}"#)), Some(names("a,b")));
        assert_eq!(of_transformers(&of(r#"{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}"#)), None);
        assert_eq!(of_transformers(&of(r#"{"id2label": {"0": "a", "2": "b"}}"#)), None);
        assert_eq!(of_timm(&of(r#"{"label_names": ["a", "b"]}"#)), Some(names("a,b")));
    }
}
