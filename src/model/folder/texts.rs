//! Opens the tokenizer of a folder (`tokenizer.json`, with the settings of its package in `tokenizer_config.json`), and reads
//! the names of the classes of its classifier from its config: `id2label` of transformers, `label_names` of timm.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::base::files::{is_there, read_json};
use crate::hub::TOKENIZER;
use crate::model::folder::added_tokens;
use crate::model::folder::preprocessing::beside;
use crate::model::folder::tokenizer_settings::{GivenKinds, check_settings, class_of};
use crate::model::folder::weights::{FILES, configs, home};

/// The start of the names that transformers gives to classes without one.
const NAMELESS: &str = "LABEL_";

/// Returns the names in the order of the logits; `None` where the config beside the weights at `path` names no classes.
pub fn class_names(path: &Path) -> Option<Vec<String>> {
    let named = |config: &Value| of_transformers(config).or_else(|| of_timm(config));
    beside(path, configs(path)).find_map(|(_, config)| named(&config)).or_else(|| named(&of_text_encoder(path)?))
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

/// Checks that the classifier of a folder has the classes of a data set in their order, as far as the folder names them. `start` is the
/// beginning of messages.
///
/// # Errors
/// Fails if it has them in another order.
pub fn expect_order(start: &str, path: &Path, data: &[String]) -> Result<()> {
    let Some(names) = class_names(path).filter(|names| names.len() == data.len()) else { return Ok(()) };
    match Agreement::of(&names, data) {
        Agreement::Same => {}
        Agreement::OtherOrder(ordered) => bail!(
            "{start}{} has the data set's classes in another order: set classes = {} in the data set's table (labels in [data.jsonl])",
            path.display(),
            toml::Value::from(ordered)
        ),
        Agreement::OtherNames(class) => tracing::warn!(
            "{start}class {class} is `{}` in {} and `{}` in the data set: they are taken for the same",
            names[class],
            path.display(),
            data[class]
        ),
    }
    Ok(())
}

/// The network that reads the tokens, for messages.
pub struct For {
    pub network: &'static str,
    /// The way out if there is no tokenizer.
    pub advice: &'static str,
    pub known: Known,
}

/// The tokens that a network knows.
#[derive(Clone, Copy)]
pub struct Known {
    pub tokens: i64,
    /// The word for the part of the network that knows them.
    pub part: &'static str,
}

impl Known {
    /// Returns whether the network knows a token.
    pub fn has(self, id: u32) -> bool {
        i64::from(id) < self.tokens
    }

    /// Checks that the network knows the tokens of a text. The tokenizers of some published networks have added tokens beyond these, such as
    /// that of images of Gemma 3 for texts.
    ///
    /// # Errors
    /// Fails at the first token that it does not know.
    pub fn expect(self, tokenizer: &Tokenizer, ids: &[u32]) -> Result<()> {
        let Some(other) = ids.iter().find(|id| !self.has(**id)) else { return Ok(()) };
        bail!(
            "has the token `{}` numbered {other}, but the {} knows {}: leave that word out of the text",
            tokenizer.id_to_token(*other).unwrap_or_default(),
            self.part,
            self.tokens
        )
    }
}

/// A tokenizer that fits its network.
pub struct StoredTokenizer {
    pub tokenizer: Tokenizer,
    /// The largest number of a token in `tokenizer.json` itself, before others are added.
    pub largest: i64,
    /// The settings of its package; null if there are none.
    pub settings: Value,
    /// The class of transformers that reads it; empty where nothing tells.
    pub class: String,
    pub path: PathBuf,
}

impl StoredTokenizer {
    /// Opens the tokenizer of a folder.
    ///
    /// # Errors
    /// Fails if there is none, if it or its settings are damaged, if these contradict it, or if its own vocabulary, without added tokens, is
    /// larger than the network's.
    pub fn open(folder: &Path, reader: &For) -> Result<StoredTokenizer> {
        let [path, settings] = TOKENIZER.map(|name| folder.join(name));
        let shown = path.display();
        let For { network, advice, known: Known { tokens: vocabulary, part } } = reader;
        ensure!(path.is_file(), "{shown}: no such file, which {network} needs: put the publisher's there{advice}");
        let file = read_json(&path)?;
        check_growth(&file).with_context(|| shown.to_string())?;
        let mut tokenizer =
            Tokenizer::from_file(&path).map_err(|error| anyhow!("{shown}: no tokenizer that bella reads: {error}"))?;
        let largest = tokenizer.get_vocab(false).into_values().max().map_or(0, i64::from);
        ensure!(
            largest < *vocabulary,
            "{shown}: has a token numbered {largest}, but the {part} knows {vocabulary}: they are not of one model"
        );
        let [_, named] = TOKENIZER;
        let settings = if is_there(&settings) { read_json(&settings)? } else { Value::Null };
        let class = class_of(&settings, &read_json(&folder.join(FILES[0])).unwrap_or_default());
        check_settings(&file, &settings, &class).with_context(|| folder.join(named).display().to_string())?;
        let largest = tokenizer.get_vocab(true).into_values().max().map_or(0, i64::from);
        added_tokens::add(&mut tokenizer, &settings, folder)?;
        tokenizer.set_encode_special_tokens(settings["split_special_tokens"] == true);
        Ok(StoredTokenizer { tokenizer, largest, settings, class, path })
    }

    /// Returns whether transformers' tokenizer returns the kinds of tokens.
    pub fn kinds(&self) -> GivenKinds {
        GivenKinds::of(&self.settings, &self.class)
    }

    /// Returns the text of a special token in the settings, such as `eos_token`: a text, or a table with its `content`.
    pub fn special(&self, name: &str) -> Option<&str> {
        let token = self.settings.get(name)?;
        token.as_str().or_else(|| token.get("content")?.as_str())
    }
}

/// The most times that the `Replace` rules of a tokenizer may lengthen a text.
const MOST_GROWTH: f64 = 1000.0;

/// Checks that the `Replace` rules of `tokenizer.json`, one after another, do not fill the memory with a short text.
fn check_growth(file: &Value) -> Result<()> {
    let all: f64 = ["normalizer", "pre_tokenizer", "decoder"].iter().map(|part| growth(&file[*part])).product();
    ensure!(
        all <= MOST_GROWTH,
        "its Replace rules lengthen a text up to {all:.3e} times, where {MOST_GROWTH} is the most: put the publisher's \
         tokenizer.json there"
    );
    Ok(())
}

/// Returns how many times the rules in a table, and in the tables within, lengthen a text.
fn growth(rule: &Value) -> f64 {
    let length = |value: &Value| value.as_str().map_or(0, str::len) as f64;
    let own = match rule["type"] == "Replace" {
        true => (length(&rule["content"]) / length(&rule["pattern"]["String"]).max(1.0)).max(1.0),
        false => 1.0,
    };
    let inner = ["normalizers", "pretokenizers", "decoders"].iter().filter_map(|key| rule[*key].as_array()).flatten();
    own * inner.map(growth).product::<f64>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    #[test]
    fn rules_that_fill_the_memory_are_refused() {
        let rules = |count: usize| {
            let one = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aaaaaaaaaa" });
            json!({ "normalizer": { "type": "Sequence", "normalizers": vec![one; count] } })
        };
        assert!(check_growth(&rules(3)).is_ok());
        let error = format!("{:#}", check_growth(&rules(12)).unwrap_err());
        assert!(error.contains("Replace rules lengthen a text up to 1.000e12 times"), "{error}");
    }
}
