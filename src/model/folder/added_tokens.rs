//! The tokens that transformers adds to a tokenizer when it opens a folder: those that the files beside `tokenizer.json` name and it does not
//! hold. They get the numbers behind its vocabulary, or keep that of a word which they are.
//!
//! Differs from transformers: tokens that a class names by itself, where no file does, are not added.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use tokenizers::{AddedToken, Tokenizer};

use crate::base::files::{is_there, read_json};
use crate::hub::{ADDED_TOKENS, TOKENIZER};

/// The keys of tokens that have a name, in the order in which transformers adds them.
const NAMED: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The keys of further special tokens: lists, or in version 5 a table by further names.
const FURTHER: [&str; 2] = ["extra_special_tokens", "additional_special_tokens"];

/// The key of tokens by their numbers. Where it is there, the older files are not read.
const NUMBERED: &str = "added_tokens_decoder";

/// Adds to a tokenizer what the settings and the older files of a folder name and it does not hold.
///
/// # Errors
/// Fails if a file is damaged, or if a token has another form.
pub fn add(tokenizer: &mut Tokenizer, settings: &Value, folder: &Path) -> Result<()> {
    let held = tokenizer.get_added_tokens_decoder().into_values();
    let mut known: BTreeSet<String> = held.map(|token| token.content).collect();
    for token in named(settings, folder)? {
        if known.insert(token.content.clone()) {
            tokenizer.add_tokens([token]).map_err(|error| anyhow!("{}: {error}", folder.display()))?;
        }
    }
    Ok(())
}

/// Returns the tokens that the settings, and without [`NUMBERED`] the older files, name, in the order in which transformers adds them.
fn named(settings: &Value, folder: &Path) -> Result<Vec<AddedToken>> {
    let file = folder.join(TOKENIZER[1]);
    let shown = || file.display().to_string();
    if let Some(numbered) = settings[NUMBERED].as_object() {
        let numbered = numbered.iter().map(|(number, token)| Ok((number.parse::<u32>()?, written(token, false)?)));
        let numbered: Result<BTreeMap<u32, AddedToken>> = numbered.collect();
        let numbered = numbered.with_context(|| format!("{}: {NUMBERED}", shown()))?;
        return Ok(numbered.into_values().chain(special(settings).with_context(shown)?).collect());
    }
    let [map, added] = ADDED_TOKENS.map(|name| folder.join(name));
    let mut settings = settings.clone();
    if is_there(&map) {
        let own = read_json(&map)?;
        let own = own.as_object().with_context(|| format!("{}: must be a table", map.display()))?;
        own.iter().filter(|(key, _)| is_known(key)).for_each(|(key, token)| settings[key] = token.clone());
    }
    let special = special(&settings).with_context(shown)?;
    let numbered = if is_there(&added) {
        numbered(&read_json(&added)?, &special).with_context(|| added.display().to_string())?
    } else {
        vec![]
    };
    Ok(numbered.into_iter().chain(special).collect())
}

fn is_known(key: &str) -> bool {
    NAMED.contains(&key) || FURTHER.contains(&key)
}

/// Returns the tokens of a table of numbers by token, in the order of the numbers. Those among `special` are special, too.
fn numbered(table: &Value, special: &[AddedToken]) -> Result<Vec<AddedToken>> {
    let rule = "must be a table of numbers by token";
    let mut tokens: Vec<(u64, &String)> = Vec::new();
    for (token, number) in table.as_object().context(rule)? {
        tokens.push((number.as_u64().context(rule)?, token));
    }
    tokens.sort();
    let of = |token: &String| AddedToken::from(token.clone(), special.iter().any(|other| other.content == *token));
    Ok(tokens.into_iter().map(|(_, token)| of(token)).collect())
}

/// Returns the special tokens of settings.
fn special(settings: &Value) -> Result<Vec<AddedToken>> {
    let of_key = |key: &'static str, token: &Value| written(token, true).with_context(|| key.to_string());
    let mut found = Vec::new();
    for key in NAMED.into_iter().filter(|key| !settings[*key].is_null()) {
        found.push(of_key(key, &settings[key])?);
    }
    for key in FURTHER {
        match &settings[key] {
            Value::Array(tokens) => {
                tokens.iter().try_for_each(|token| of_key(key, token).map(|token| found.push(token)))?
            }
            Value::Object(tokens) => {
                tokens.values().try_for_each(|token| of_key(key, token).map(|token| found.push(token)))?
            }
            Value::Null => {}
            _ => bail!("{key}: must be a list of tokens"),
        }
    }
    found.retain(|token| !token.content.is_empty());
    Ok(found)
}

/// Returns a token that is written as its text, or as a table with its `content`; `is_special` where the table does not say it.
fn written(token: &Value, is_special: bool) -> Result<AddedToken> {
    if let Some(text) = token.as_str() {
        return Ok(AddedToken::from(text, is_special));
    }
    let text = token["content"].as_str().context("must be a token: a text, or a table with its `content`")?;
    let says = |key: &str| token[key].as_bool();
    let made = AddedToken::from(text, is_special || says("special") == Some(true));
    let made = made.lstrip(says("lstrip") == Some(true)).rstrip(says("rstrip") == Some(true));
    let made = made.single_word(says("single_word") == Some(true));
    Ok(says("normalized").map_or(made.clone(), |normalized| made.normalized(normalized)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::folder::texts::{For, Known, StoredTokenizer};

    /// scripts/make_added_token_goldens.py
    #[test]
    fn tokenizers_get_the_tokens_that_transformers_adds() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let golden: Value = read_json(&fixtures.join("tokens/added.json")).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let folder = tempfile::tempdir().unwrap();
            let write =
                |name: &str, value: &Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
            let of = |name: &str| -> Value { read_json(&fixtures.join("encoder/roberta").join(name)).unwrap() };
            let mut settings = of(TOKENIZER[1]);
            case["settings"].as_object().into_iter().flatten().for_each(|(key, value)| settings[key] = value.clone());
            write(TOKENIZER[0], &of(TOKENIZER[0]));
            write(TOKENIZER[1], &settings);
            ADDED_TOKENS.iter().filter(|name| !case[**name].is_null()).for_each(|name| write(name, &case[*name]));
            let known = Known { tokens: 300, part: "network" };
            let stored =
                StoredTokenizer::open(folder.path(), &For { network: "a network", advice: "", known }).unwrap();
            for (text, expected) in golden["texts"].as_array().unwrap().iter().zip(case["ids"].as_array().unwrap()) {
                let found = stored.tokenizer.encode(text.as_str().unwrap(), true).unwrap();
                assert_eq!(serde_json::to_value(found.get_ids()).unwrap(), *expected, "{text}: {case}");
            }
        }
    }

    #[test]
    fn tokens_of_another_form_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = |settings: &Value| format!("{:#}", named(settings, folder.path()).unwrap_err());
        for (settings, said) in [
            (serde_json::json!({ "mask_token": 3 }), "tokenizer_config.json: mask_token: must be a token: a text"),
            (
                serde_json::json!({ "additional_special_tokens": "<x>" }),
                "additional_special_tokens: must be a list of tokens",
            ),
            (serde_json::json!({ NUMBERED: { "x": "<x>" } }), "tokenizer_config.json: added_tokens_decoder: "),
        ] {
            let found = error(&settings);
            assert!(found.contains(said), "{settings}: {found}");
        }
        std::fs::write(folder.path().join(ADDED_TOKENS[1]), r#"{ "<x>": "first" }"#).unwrap();
        assert!(error(&Value::Null).ends_with("added_tokens.json: must be a table of numbers by token"));
    }
}
