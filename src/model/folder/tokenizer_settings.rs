//! The settings of a tokenizer in `tokenizer_config.json`, which must say what its `tokenizer.json` says: classes of transformers prepare texts
//! by the settings.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::hub::TOKENIZER;
use crate::model::families::tokenizer_class;

/// The settings that `tokenizer.json` states a second time: the key of each, the type of the part that states it, and the key there.
const TWICE: [(&str, &str, &str); 4] = [
    ("do_lower_case", "BertNormalizer", "lowercase"),
    ("strip_accents", "BertNormalizer", "strip_accents"),
    ("tokenize_chinese_chars", "BertNormalizer", "handle_chinese_chars"),
    ("add_prefix_space", "ByteLevel", "add_prefix_space"),
];

/// The classes of transformers that take all of `tokenizer.json`, and no setting in its place.
const PLAIN: [&str; 2] = ["PreTrainedTokenizerFast", "TokenizersBackend"];

/// The value that some classes of transformers take where settings are absent.
struct Usual {
    keys: &'static [&'static str],
    value: bool,
    classes: &'static [&'static str],
}

static USUAL: [Usual; 2] = [
    Usual {
        keys: &["do_lower_case", "tokenize_chinese_chars"],
        value: true,
        classes: &["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"],
    },
    Usual {
        keys: &["add_prefix_space"],
        value: false,
        classes: &["RobertaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer"],
    },
];

/// A setting that a class of transformers builds a part of `tokenizer.json` for, or leaves it out.
struct ByPart {
    class: &'static str,
    key: &'static str,
    part: &'static str,
    /// The value for which the part is there.
    with: bool,
    /// The value of an absent key.
    usual: bool,
}

static BY_PART: [ByPart; 4] = [
    ByPart { class: "DebertaV2Tokenizer", key: "do_lower_case", part: "Lowercase", with: true, usual: false },
    ByPart { class: "DebertaV2Tokenizer", key: "split_by_punct", part: "Punctuation", with: true, usual: false },
    ByPart { class: "AlbertTokenizer", key: "do_lower_case", part: "Lowercase", with: true, usual: true },
    ByPart { class: "AlbertTokenizer", key: "keep_accents", part: "StripAccents", with: false, usual: false },
];

/// The classes of transformers 5.24 that return the kinds of tokens where no setting says whether they do.
const WITH_KINDS: [&str; 4] = ["BertTokenizer", "ElectraTokenizer", "DebertaTokenizer", "DebertaV2Tokenizer"];

/// The setting that lists what a tokenizer returns, and the name of the kinds of tokens there.
const RETURNED: [&str; 2] = ["model_input_names", "token_type_ids"];

/// Whether a tokenizer returns the kinds of tokens, by which a network tells the two texts of a pair apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GivenKinds {
    /// It returns them.
    Given,
    /// It does not, as its settings say.
    Left,
    /// It does not, as is usual in its class.
    LeftByClass,
}

impl GivenKinds {
    /// Returns what a class of transformers does by its settings.
    pub fn of(settings: &Value, class: &str) -> GivenKinds {
        let [key, name] = RETURNED;
        match settings[key].as_array() {
            Some(all) if all.iter().any(|one| one == name) => GivenKinds::Given,
            Some(_) => GivenKinds::Left,
            None if WITH_KINDS.contains(&plain(class)) => GivenKinds::Given,
            None => GivenKinds::LeftByClass,
        }
    }
}

/// Returns the name of a class without the ending that version 4 of transformers gave it.
fn plain(class: &str) -> &str {
    class.strip_suffix("Fast").unwrap_or(class)
}

/// The types of networks whose class of tokenizers counts before the one that a folder names (`MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS` of
/// transformers 5.24).
const BEFORE_SETTINGS: [(&str, &str); 4] = [
    ("qwen2", "Qwen2Tokenizer"),
    ("modernbert", "TokenizersBackend"),
    ("phi3", "TokenizersBackend"),
    ("llava", "TokenizersBackend"),
];

/// Returns the class of transformers that reads a tokenizer, by its settings or by the network's config; a name of no class where neither
/// tells.
pub fn class_of(settings: &Value, config: &Value) -> String {
    if let Some((_, class)) = BEFORE_SETTINGS.iter().find(|(model_type, _)| config["model_type"] == *model_type) {
        return class.to_string();
    }
    let named = [settings, config].into_iter().find_map(|table| table["tokenizer_class"].as_str());
    let of_type = || config["model_type"].as_str().and_then(tokenizer_class);
    named.or_else(of_type).unwrap_or_default().to_string()
}

/// Checks that settings do not contradict `tokenizer.json`. The classes of transformers but the plain ones, and their predecessors in
/// version 4, prepare texts by the settings then, of which absent ones mean what is usual in the class.
pub fn check_settings(file: &Value, settings: &Value, class: &str) -> Result<()> {
    if PLAIN.contains(&class) {
        return Ok(());
    }
    let checked = Checked { file, settings, class: plain(class) };
    checked.stated_twice()?;
    checked.by_parts()
}

/// The rule that both of these break when they differ.
const RULE: &str = "transformers prepares texts by the one or the other: let both be the same";

/// A tokenizer with its settings, and the class that reads them.
struct Checked<'a> {
    file: &'a Value,
    settings: &'a Value,
    class: &'a str,
}

impl Checked<'_> {
    fn parts(&self) -> impl Iterator<Item = &Value> {
        [&self.file["normalizer"], &self.file["pre_tokenizer"]].into_iter().flat_map(parts)
    }

    /// Returns the words behind the value of an absent key that say why it is that one.
    fn absent(&self) -> String {
        format!(" (what {} means, as the key is absent or null)", self.class)
    }

    /// Checks the settings that `tokenizer.json` states a second time.
    fn stated_twice(&self) -> Result<()> {
        let Checked { settings, class, .. } = self;
        let usual = |key: &str| {
            let found = USUAL.iter().find(|usual| usual.keys.contains(&key) && usual.classes.contains(class));
            found.map(|usual| usual.value)
        };
        let said = |key: &str| settings[key].as_bool().or_else(|| usual(key));
        for (key, part, own) in TWICE {
            let Some(table) = self.parts().find(|table| table["type"] == part) else { continue };
            let (mut asked, mut found) = (said(key), table[own].as_bool());
            if key == "strip_accents" {
                // Where nothing tells, accents go with the capitals.
                asked = asked.or_else(|| said("do_lower_case"));
                found = found.or_else(|| table["lowercase"].as_bool());
            }
            let (Some(asked), Some(found)) = (asked, found) else { continue };
            let how = match (settings[key].is_boolean(), usual(key)) {
                (true, _) => String::new(),
                (false, Some(_)) => self.absent(),
                (false, None) => " (as do_lower_case, since the key is absent or null)".to_string(),
            };
            ensure!(
                asked == found,
                "{key} = {asked}{how}, but {part} of {} has {own} = {}: {RULE}",
                TOKENIZER[0],
                table[own]
            );
        }
        Ok(())
    }

    /// Checks the settings for which the class builds a part of `tokenizer.json`.
    fn by_parts(&self) -> Result<()> {
        let is_unigram = self.file["model"]["type"] == "Unigram";
        for ByPart { key, part, with, usual, .. } in BY_PART.iter().filter(|one| one.class == self.class && is_unigram)
        {
            let said = self.settings[key].as_bool();
            let (asked, how) = (said.unwrap_or(*usual), said.map_or_else(|| self.absent(), |_| String::new()));
            let is_there = self.parts().any(|table| table["type"] == *part);
            ensure!(
                (asked == *with) == is_there,
                "{key} = {asked}{how}, but {} has {} {part}: {RULE}",
                TOKENIZER[0],
                if is_there { "a" } else { "no" }
            );
        }
        Ok(())
    }
}

/// Returns a part of a tokenizer, and the parts within.
fn parts(part: &Value) -> Vec<&Value> {
    let inner = ["normalizers", "pretokenizers"].iter().filter_map(|key| part[*key].as_array()).flatten();
    [part].into_iter().chain(inner.flat_map(parts)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `transformers.AutoTokenizer` 5.24 of a folder of BERT, GPT-2 or Qwen 2 whose `tokenizer_config.json` was changed prepares texts by the
    /// setting, but for the plain classes.
    #[test]
    fn settings_that_contradict_the_tokenizer_are_refused() {
        let bert = json!({ "normalizer": { "type": "BertNormalizer", "lowercase": true, "strip_accents": null } });
        let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false });
        let bytes = json!({ "pre_tokenizer": { "type": "Sequence", "pretokenizers": [{ "type": "Digits" }, bytes] } });
        let refused = |file: &Value, settings: Value| {
            check_settings(file, &settings, &class_of(&settings, &Value::Null)).err().map(|why| why.to_string())
        };
        let lower = refused(&bert, json!({ "tokenizer_class": "BertTokenizer", "do_lower_case": false })).unwrap();
        assert!(
            lower.starts_with("do_lower_case = false, but BertNormalizer of tokenizer.json has lowercase = true"),
            "{lower}"
        );
        let space = refused(&bytes, json!({ "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true })).unwrap();
        assert!(space.contains("ByteLevel of tokenizer.json has add_prefix_space = false"), "{space}");
        for (file, settings) in [
            (&bert, json!({ "do_lower_case": true, "strip_accents": true, "add_prefix_space": true })),
            (&bert, json!({ "do_lower_case": false, "tokenizer_class": "PreTrainedTokenizerFast" })),
            (&bytes, json!({ "do_lower_case": false, "add_prefix_space": null })),
            (&bytes, Value::Null),
        ] {
            assert_eq!(refused(file, settings), None);
        }
    }

    /// `transformers.AutoTokenizer` 5.24 of a folder of BERT or RoBERTa whose `tokenizer_config.json` lacks the setting, or is not there, prepares
    /// texts by the default of the class: it lowers capitals, and puts no space in front.
    #[test]
    fn absent_settings_mean_what_is_usual_in_the_class() {
        let bert = |lower: bool, accents: Value| {
            let more = json!({ "type": "BertNormalizer", "lowercase": lower, "strip_accents": accents });
            json!({ "normalizer": more })
        };
        let bytes = |space: bool| json!({ "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": space } });
        let refused = |file: &Value, settings: Value, model_type: &str| {
            let class = class_of(&settings, &json!({ "model_type": model_type }));
            check_settings(file, &settings, &class).err().map(|why| why.to_string())
        };
        let absent =
            "(what BertTokenizer means, as the key is absent or null), but BertNormalizer of tokenizer.json has";
        for (file, settings, model_type, rule) in [
            (bert(false, Value::Null), Value::Null, "bert", format!("do_lower_case = true {absent} lowercase = false")),
            (
                bert(false, Value::Null),
                json!({ "tokenizer_class": "BertTokenizerFast" }),
                "llama",
                format!("do_lower_case = true {absent} lowercase = false"),
            ),
            // Without a word of its own, the setting follows the capitals.
            (
                bert(true, json!(false)),
                Value::Null,
                "bert",
                "strip_accents = true (as do_lower_case, since the key is absent or null), but BertNormalizer of tokenizer.json has".into(),
            ),
            (
                bert(true, Value::Null),
                json!({ "strip_accents": false }),
                "bert",
                "strip_accents = false, but BertNormalizer of tokenizer.json has strip_accents = null".into(),
            ),
            (
                bytes(true),
                json!({ "model_max_length": 512 }),
                "roberta",
                "add_prefix_space = false (what RobertaTokenizer".into(),
            ),
            (bytes(true), Value::Null, "gpt2", "add_prefix_space = false (what GPT2Tokenizer".into()),
        ] {
            let found = refused(&file, settings, model_type).unwrap();
            assert!(found.starts_with(&rule), "{found}");
        }
        for (file, settings, model_type) in [
            (bert(true, Value::Null), Value::Null, "bert"),
            (bert(false, Value::Null), json!({ "do_lower_case": false }), "bert"),
            (bert(false, json!(false)), Value::Null, "modernbert"),
            (bert(false, Value::Null), json!({ "tokenizer_class": "PreTrainedTokenizerFast" }), "bert"),
            (bytes(false), Value::Null, "roberta"),
            (bytes(true), json!({ "add_prefix_space": true }), "roberta"),
            (bytes(true), Value::Null, "llama"),
        ] {
            assert_eq!(refused(&file, settings, model_type), None);
        }
    }

    /// `transformers.AutoTokenizer` 5.24 of such folders lowers, splits and keeps accents by the settings, and not by the file.
    #[test]
    fn settings_of_sentencepiece_are_those_of_the_file() {
        let refused = |class: &str, settings: Value, [normalizer, pre]: [&str; 2]| {
            let file = json!({
                "model": { "type": "Unigram" },
                "normalizer": { "type": "Sequence", "normalizers": [{ "type": "NFKC" }, { "type": normalizer }] },
                "pre_tokenizer": { "type": "Sequence", "pretokenizers": [{ "type": pre }, { "type": "Metaspace" }] },
            });
            check_settings(&file, &settings, class).err().map(|why| why.to_string())
        };
        let (deberta, albert) = ("DebertaV2TokenizerFast", "AlbertTokenizer");
        for (class, settings, file, rule) in [
            (
                deberta,
                json!({ "do_lower_case": true }),
                ["Strip", "x"],
                "do_lower_case = true, but tokenizer.json has no Lowercase: ",
            ),
            (
                deberta,
                json!({}),
                ["Lowercase", "x"],
                "do_lower_case = false (what DebertaV2Tokenizer means, as the key is absent or null), but",
            ),
            (
                deberta,
                json!({ "split_by_punct": true }),
                ["Strip", "x"],
                "split_by_punct = true, but tokenizer.json has no Punctuation: ",
            ),
            (
                albert,
                json!({ "keep_accents": true }),
                ["Strip", "x"],
                "do_lower_case = true (what AlbertTokenizer means, ",
            ),
            (
                albert,
                json!({ "do_lower_case": false }),
                ["Strip", "x"],
                "keep_accents = false (what AlbertTokenizer means, ",
            ),
            (
                albert,
                json!({ "do_lower_case": false, "keep_accents": true }),
                ["StripAccents", "x"],
                "keep_accents = true, but tokenizer.json has a StripAccents: ",
            ),
        ] {
            let found = refused(class, settings, file).unwrap();
            assert!(found.starts_with(rule), "{found}");
        }
        for (class, settings, file) in [
            (deberta, json!({ "do_lower_case": false, "split_by_punct": false }), ["Strip", "x"]),
            (deberta, json!({ "do_lower_case": true, "split_by_punct": true }), ["Lowercase", "Punctuation"]),
            (albert, json!({ "do_lower_case": false, "keep_accents": true }), ["Strip", "x"]),
            (albert, json!({ "keep_accents": true }), ["Lowercase", "x"]),
        ] {
            assert_eq!(refused(class, settings, file), None);
        }
    }
}
