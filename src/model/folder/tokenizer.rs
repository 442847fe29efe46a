//! Opens the tokenizer of a folder: `tokenizer.json`, with the settings of its package in `tokenizer_config.json`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::base::files::{is_there, read_json};

/// The files that describe a tokenizer: the tokenizer, and the settings with which its package wraps it.
pub const TOKENIZER: [&str; 2] = ["tokenizer.json", "tokenizer_config.json"];

/// The network that reads the tokens, for messages.
pub struct For {
    pub network: &'static str,
    /// The way out if there is no tokenizer.
    pub advice: &'static str,
    /// The number of tokens that the network knows.
    pub vocabulary: i64,
    /// The word for the part of the network that knows them.
    pub part: &'static str,
}

/// A tokenizer that fits its network.
pub struct StoredTokenizer {
    pub tokenizer: Tokenizer,
    /// The settings of its package; null if there are none.
    pub settings: Value,
    pub path: PathBuf,
}

impl StoredTokenizer {
    /// Opens the tokenizer of a folder.
    ///
    /// # Errors
    /// Fails if there is none, if it or its settings are damaged, or if it has a token that the network does not know.
    pub fn open(folder: &Path, reader: &For) -> Result<StoredTokenizer> {
        let [path, settings] = TOKENIZER.map(|name| folder.join(name));
        let shown = path.display();
        let For { network, advice, vocabulary, part } = reader;
        ensure!(path.is_file(), "{shown}: no such file, which {network} needs: put the publisher's there{advice}");
        check_growth(&read_json(&path)?).with_context(|| shown.to_string())?;
        let tokenizer =
            Tokenizer::from_file(&path).map_err(|error| anyhow!("{shown}: no tokenizer that bella reads: {error}"))?;
        let largest = tokenizer.get_vocab(true).into_values().max().map_or(0, i64::from);
        ensure!(
            largest < *vocabulary,
            "{shown}: has a token numbered {largest}, but the {part} knows {vocabulary}: they are not of one model"
        );
        let settings = if is_there(&settings) { read_json(&settings)? } else { Value::Null };
        Ok(StoredTokenizer { tokenizer, settings, path })
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
