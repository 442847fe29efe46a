//! Opens the tokenizer of a folder (`tokenizer.json`, with the settings of its package in `tokenizer_config.json`), and reads
//! the names of the classes of its classifier from its config: `id2label` of transformers, `label_names` of timm.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::base::files::{is_there, read_json};
use crate::hub::TOKENIZER;
use crate::model::families::tokenizer_class;
use crate::model::folder::preprocessing::beside;
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
    /// The settings of its package; null if there are none.
    pub settings: Value,
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
        tokenizer.set_encode_special_tokens(settings["split_special_tokens"] == true);
        Ok(StoredTokenizer { tokenizer, settings, path })
    }

    /// Returns the text of a special token in the settings, such as `eos_token`: a text, or a table with its `content`.
    pub fn special(&self, name: &str) -> Option<&str> {
        let token = self.settings.get(name)?;
        token.as_str().or_else(|| token.get("content")?.as_str())
    }
}

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

/// Returns the class of transformers that reads a tokenizer, by its settings or by the network's config; a name of no class where neither
/// tells.
fn class_of(settings: &Value, config: &Value) -> String {
    let named = [settings, config].into_iter().find_map(|table| table["tokenizer_class"].as_str());
    let of_type = || config["model_type"].as_str().and_then(tokenizer_class);
    named.or_else(of_type).unwrap_or_default().to_string()
}

/// Checks that settings do not contradict `tokenizer.json`. The classes of transformers but the plain ones, and their predecessors in
/// version 4, prepare texts by the settings then, of which absent ones mean what is usual in the class.
fn check_settings(file: &Value, settings: &Value, class: &str) -> Result<()> {
    if PLAIN.contains(&class) {
        return Ok(());
    }
    let class = class.strip_suffix("Fast").unwrap_or(class);
    let usual = |key: &str| {
        let found = USUAL.iter().find(|usual| usual.keys.contains(&key) && usual.classes.contains(&class));
        found.map(|usual| usual.value)
    };
    let said = |key: &str| settings[key].as_bool().or_else(|| usual(key));
    let parts = || [&file["normalizer"], &file["pre_tokenizer"]].into_iter().flat_map(parts);
    for (key, part, own) in TWICE {
        let Some(table) = parts().find(|table| table["type"] == part) else { continue };
        let (mut asked, mut found) = (said(key), table[own].as_bool());
        if key == "strip_accents" {
            // Where nothing tells, accents go with the capitals.
            asked = asked.or_else(|| said("do_lower_case"));
            found = found.or_else(|| table["lowercase"].as_bool());
        }
        let (Some(asked), Some(found)) = (asked, found) else { continue };
        let how = match (settings[key].is_boolean(), usual(key)) {
            (true, _) => String::new(),
            (false, Some(_)) => format!(" (what {class} means, as the key is absent or null)"),
            (false, None) => " (as do_lower_case, since the key is absent or null)".to_string(),
        };
        ensure!(
            asked == found,
            "{key} = {asked}{how}, but {part} of {} has {own} = {}: transformers prepares texts by the one or the other: let both be the same",
            TOKENIZER[0],
            table[own]
        );
    }
    for ByPart { key, part, with, usual, .. } in
        BY_PART.iter().filter(|setting| setting.class == class && file["model"]["type"] == "Unigram")
    {
        let asked = settings[key].as_bool();
        let how = if asked.is_some() {
            String::new()
        } else {
            format!(" (what {class} means, as the key is absent or null)")
        };
        let (asked, is_there) = (asked.unwrap_or(*usual), parts().any(|table| table["type"] == *part));
        ensure!(
            (asked == *with) == is_there,
            "{key} = {asked}{how}, but {} has {} {part}: transformers prepares texts by the one or the other: let both be the same",
            TOKENIZER[0],
            if is_there { "a" } else { "no" }
        );
    }
    Ok(())
}

/// Returns a part of a tokenizer, and the parts within.
fn parts(part: &Value) -> Vec<&Value> {
    let inner = ["normalizers", "pretokenizers"].iter().filter_map(|key| part[*key].as_array()).flatten();
    [part].into_iter().chain(inner.flat_map(parts)).collect()
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
