//! The tokenizer of a text tower: the one in the `tokenizer.json` of a folder of SigLIP, or of transformers' CLIP, else CLIP's, which
//! is built in.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tokenizers::{PaddingDirection, PaddingParams, PaddingStrategy, TruncationParams};

use crate::base::files::read_json;
use crate::hub::TOKENIZER;
use crate::model::folder;
use crate::model::folder::texts::{For, Known, StoredTokenizer};
use crate::model::head::tokens::{self, Package};
use crate::model::vit::text::{TextGeometry, TextStyle};

/// Turns texts into tokens.
pub enum Tokenizer {
    /// CLIP's vocabulary, for texts that are prepared as a package does it.
    Clip(Package),
    Stored(Box<Stored>),
}

/// The tokens of a text.
pub struct Tokens {
    pub numbers: Vec<i64>,
    /// Whether the text was cut to fit the context.
    pub is_cut: bool,
}

impl Tokenizer {
    /// Returns the tokenizer of the text tower of the checkpoint at `path`.
    ///
    /// # Errors
    /// Fails if the text tower has another vocabulary than its tokenizer, or if the folder's tokenizer is missing or damaged.
    pub fn of(text: &TextGeometry, path: &Path) -> Result<Tokenizer> {
        let folder = folder::home(path);
        let config = folder::config_file(path).map(|file| read_json(&file)).transpose()?.unwrap_or(Value::Null);
        check_options(&config, text.style)?;
        let is_of_transformers = folder::has_weights(path)? && config.get("model_type").is_some();
        let stored = |found: Result<Stored>| found.map(|found| Tokenizer::Stored(Box::new(found)));
        match (text.style, is_of_transformers) {
            (TextStyle::Siglip, _) => stored(Stored::of_siglip(&folder, &config, text)),
            (TextStyle::Clip, true) if folder.join(TOKENIZER[0]).is_file() => stored(Stored::of_clip(&folder, text)),
            (TextStyle::Clip, _) => {
                ensure!(
                    text.vocabulary == tokens::VOCABULARY,
                    "the checkpoint's text tower knows {} tokens, not the {} of CLIP's vocabulary: set \
                     head.zero-shot.weights instead",
                    text.vocabulary,
                    tokens::VOCABULARY
                );
                Ok(Tokenizer::Clip(if is_of_transformers { Package::Transformers } else { Package::OpenClip }))
            }
        }
    }

    /// Returns the tokens of a text, at most `context`; SigLIP's are always as many as its own context.
    ///
    /// # Errors
    /// Fails if the file's tokenizer cannot read the text.
    pub fn tokens(&self, text: &str, context: usize) -> Result<Tokens> {
        match self {
            Tokenizer::Clip(package) => {
                let numbers = tokens::tokens(text, context, *package);
                let is_cut = numbers.len() == context && tokens::tokens(text, usize::MAX, *package).len() > context;
                Ok(Tokens { numbers, is_cut })
            }
            Tokenizer::Stored(stored) => stored.tokens(text),
        }
    }
}

/// What happens to a text before its tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cleaning {
    /// Lower case, no ASCII punctuation, single spaces, as SigLIP's tokenizer in transformers does.
    Canonical,
    /// The same, but an underscore becomes a space, and HTML and odd characters are repaired first, as open_clip does.
    OpenClipCanonical,
    /// Lower case, and open_clip's repairs.
    OpenClipLower,
    /// open_clip's repairs.
    OpenClipWhitespace,
    /// Lower case, with which SigLIP 2 was trained. transformers does this in its class, not in the file.
    Lower,
    /// Nothing, where the tokenizer's file says all.
    Nothing,
}

impl Cleaning {
    /// Returns what the config of a folder asks for: that of open_clip, else the class of transformers.
    fn of(config: &Value, settings: &Value) -> Result<Cleaning> {
        let text = config.pointer("/model_cfg/text_cfg");
        let said = text.map(|text| text.pointer("/tokenizer_kwargs/clean").and_then(Value::as_str));
        let class = settings.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
        match said {
            Some(Some("canonicalize")) => Ok(Cleaning::OpenClipCanonical),
            Some(Some("lower")) => Ok(Cleaning::OpenClipLower),
            Some(Some("whitespace") | None) => Ok(Cleaning::OpenClipWhitespace),
            Some(Some(word)) => Err(anyhow!(
                "open_clip_config.json: clean = \"{word}\" is none that bella knows: canonicalize, lower, whitespace; \
                 set head.zero-shot.weights instead"
            )),
            None if class.starts_with("SiglipTokenizer") && settings["do_lower_case"] == false => Err(anyhow!(
                "{}: do_lower_case = false: bella writes SigLIP's texts in lower case; set head.zero-shot.weights instead",
                TOKENIZER[1]
            )),
            None if class.starts_with("SiglipTokenizer") => Ok(Cleaning::Canonical),
            None => Ok(Cleaning::Lower),
        }
    }

    fn apply(self, text: &str) -> String {
        match self {
            Cleaning::Canonical => canonical(&text.to_lowercase()),
            Cleaning::OpenClipCanonical => canonical(&tokens::clean(text).replace('_', " ").to_lowercase()),
            Cleaning::OpenClipLower => tokens::clean(text).to_lowercase(),
            Cleaning::OpenClipWhitespace => tokens::clean(text),
            Cleaning::Lower => text.to_lowercase(),
            Cleaning::Nothing => text.to_string(),
        }
    }
}

/// Checks the options that a config of open_clip gives its tokenizer: CLIP's writes texts in lower case, and texts that are too
/// long are cut.
fn check_options(config: &Value, style: TextStyle) -> Result<()> {
    let options = config.pointer("/model_cfg/text_cfg/tokenizer_kwargs").and_then(Value::as_object);
    for (key, value) in options.into_iter().flatten() {
        let known = value.is_null()
            || match (key.as_str(), style) {
                ("clean", TextStyle::Clip) => value == "lower",
                ("strip_sep_token", _) => value == false,
                ("clean", TextStyle::Siglip) | ("context_length", _) => true,
                _ => false,
            };
        ensure!(
            known,
            "open_clip_config.json: tokenizer_kwargs.{key} = {value}: bella does not prepare texts this way; set \
             head.zero-shot.weights instead"
        );
    }
    Ok(())
}

/// Returns a text without ASCII punctuation and with single spaces.
fn canonical(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The tokenizer of a folder, which cuts texts to the context.
pub struct Stored {
    tokenizer: tokenizers::Tokenizer,
    cleaning: Cleaning,
    known: Known,
}

impl Stored {
    /// Opens SigLIP's tokenizer. Its texts are filled to the context, since SigLIP reads its last token.
    fn of_siglip(folder: &Path, config: &Value, text: &TextGeometry) -> Result<Stored> {
        let stored = Stored::open(folder, "SigLIP's text tower", text)?;
        let padding = padding(&stored, Stored::known(text), text.context as usize).with_context(|| {
            format!(
                "{}: neither it nor {} names the `pad_token` with which SigLIP's texts are filled",
                stored.path.display(),
                TOKENIZER[1]
            )
        })?;
        let cleaning = Cleaning::of(config, &stored.settings)?;
        Stored::cut(stored, Some(padding), cleaning, text)
    }

    /// Opens the tokenizer of transformers' CLIP, whose file says how texts are prepared.
    fn of_clip(folder: &Path, text: &TextGeometry) -> Result<Stored> {
        Stored::cut(Stored::open(folder, "CLIP's text tower", text)?, None, Cleaning::Nothing, text)
    }

    fn open(folder: &Path, network: &'static str, text: &TextGeometry) -> Result<StoredTokenizer> {
        let advice = ", or set head.zero-shot.weights";
        StoredTokenizer::open(folder, &For { network, advice, known: Stored::known(text) })
    }

    /// Returns the tokens that a text tower knows.
    fn known(text: &TextGeometry) -> Known {
        Known { tokens: text.vocabulary, part: "text tower" }
    }

    fn cut(
        stored: StoredTokenizer,
        padding: Option<PaddingParams>,
        cleaning: Cleaning,
        text: &TextGeometry,
    ) -> Result<Stored> {
        let StoredTokenizer { mut tokenizer, path, .. } = stored;
        let cut = TruncationParams { max_length: text.context as usize, ..TruncationParams::default() };
        let tokenizer = tokenizer.with_padding(padding).with_truncation(Some(cut));
        let tokenizer = tokenizer.map_err(|e| anyhow!("{}: {e}", path.display()))?.clone().into();
        Ok(Stored { tokenizer, cleaning, known: Stored::known(text) })
    }

    fn tokens(&self, text: &str) -> Result<Tokens> {
        let found = self.tokenizer.encode(self.cleaning.apply(text), true).map_err(|e| anyhow!("`{text}`: {e}"))?;
        self.known.expect(&self.tokenizer, found.get_ids()).with_context(|| format!("`{text}`"))?;
        let numbers = found.get_ids().iter().map(|id| i64::from(*id)).collect();
        Ok(Tokens { numbers, is_cut: !found.get_overflowing().is_empty() })
    }
}

/// Returns how texts are filled to `context`: as the settings say, else as the tokenizer's file does, else as the class of
/// transformers does (Gemma's, of SigLIP 2, fills on the left). A token is a text, or a table with its `content`.
fn padding(stored: &StoredTokenizer, known: Known, context: usize) -> Option<PaddingParams> {
    let StoredTokenizer { tokenizer, settings, .. } = stored;
    let own = tokenizer.get_padding();
    let token = stored.special("pad_token").map(str::to_string).or_else(|| own.map(|own| own.pad_token.clone()))?;
    let class = settings.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
    let fills_left = ["Gemma", "Siglip2"].iter().any(|start| class.starts_with(start));
    let direction = match settings.get("padding_side").and_then(Value::as_str) {
        Some("left") => PaddingDirection::Left,
        Some(_) => PaddingDirection::Right,
        None => {
            own.map_or(if fills_left { PaddingDirection::Left } else { PaddingDirection::Right }, |own| own.direction)
        }
    };
    // Texts would be filled with a token that the tower does not know.
    let pad_id = tokenizer.token_to_id(&token).filter(|id| known.has(*id))?;
    let strategy = PaddingStrategy::Fixed(context);
    Some(PaddingParams { strategy, direction, pad_id, pad_token: token, ..PaddingParams::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_preparations_of_texts_are_refused_by_name() {
        let with = |options: Value| serde_json::json!({ "model_cfg": { "text_cfg": { "tokenizer_kwargs": options } } });
        let check = |options: Value| check_options(&with(options), TextStyle::Clip);
        assert!(check(serde_json::json!({ "clean": "lower" })).is_ok());
        assert!(check(serde_json::json!({ "strip_sep_token": false })).is_ok());
        let error = format!("{:#}", check(serde_json::json!({ "strip_sep_token": true })).unwrap_err());
        assert!(error.contains("tokenizer_kwargs.strip_sep_token = true: bella does not prepare"), "{error}");
        for (key, value) in [("clean", "canonicalize"), ("reduction_mask", "syntax")] {
            let error = format!("{:#}", check(serde_json::json!({ key: value })).unwrap_err());
            assert!(error.contains(&format!("tokenizer_kwargs.{key} = \"{value}\"")), "{error}");
        }
        let settings = serde_json::json!({ "tokenizer_class": "SiglipTokenizer", "do_lower_case": false });
        let error = Cleaning::of(&Value::Null, &settings).unwrap_err().to_string();
        assert!(error.contains("do_lower_case = false"), "{error}");
    }

    #[test]
    fn texts_are_cleaned_as_their_package_does() {
        let text = "A  photo of a `Great_Dane` &amp; (dog).";
        for (cleaning, expected) in [
            (Cleaning::Canonical, "a photo of a greatdane amp dog"),
            (Cleaning::OpenClipCanonical, "a photo of a great dane dog"),
            (Cleaning::OpenClipLower, "a photo of a `great_dane` & (dog)."),
            (Cleaning::OpenClipWhitespace, "A photo of a `Great_Dane` & (dog)."),
            (Cleaning::Lower, "a  photo of a `great_dane` &amp; (dog)."),
        ] {
            assert_eq!(cleaning.apply(text), expected, "{cleaning:?}");
        }
    }

    fn geometry(vocabulary: i64, context: i64) -> TextGeometry {
        TextGeometry { width: 8, blocks: 1, mlp: 8, vocabulary, context, output: 8, style: TextStyle::Clip }
    }

    fn fixture(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokens").join(name)
    }

    /// A folder of transformers has its own vocabulary and preparation (scripts/make_tokenizer_goldens.py).
    #[test]
    fn the_tokenizer_of_transformers_clip_is_read_from_its_folder() {
        let golden: Value = read_json(&fixture("clip.json")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in TOKENIZER {
            std::fs::copy(fixture("clip-small").join(name), folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("config.json"), r#"{ "model_type": "clip" }"#).unwrap();
        let context = golden["context"].as_i64().unwrap();
        let tokenizer = Tokenizer::of(&geometry(574, context), folder.path()).unwrap();
        for row in golden["rows"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            let expected: Vec<i64> = serde_json::from_value(row["small"].clone()).unwrap();
            let found = tokenizer.tokens(text, context as usize).unwrap();
            assert_eq!(found.numbers, expected, "{text:?}");
            assert!(!found.is_cut || expected.len() == context as usize, "{text:?}");
        }
        let error = Tokenizer::of(&geometry(100, context), folder.path()).err().unwrap().to_string();
        assert!(error.contains("has a token numbered 573, but the text tower knows 100"), "{error}");
    }

    /// Without a file, the config tells the package.
    #[test]
    fn texts_are_prepared_as_the_package_of_the_folder_does() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = |name: &str, config: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, config).unwrap();
            let tokenizer = Tokenizer::of(&geometry(tokens::VOCABULARY, 77), folder.path()).unwrap();
            std::fs::remove_file(file).unwrap();
            tokenizer.tokens("rock &amp; roll", 77).unwrap().numbers
        };
        assert_eq!(tokens("open_clip_config.json", r#"{ "model_cfg": {} }"#), [49406, 2172, 261, 3341, 49407]);
        assert_eq!(tokens("config.json", r#"{ "model_type": "clip" }"#), [49406, 2172, 261, 6259, 282, 3341, 49407]);
    }
}
