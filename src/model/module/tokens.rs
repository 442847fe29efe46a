//! The tokenizer of a text encoder: `tokenizer.json`, whose post-processor puts special tokens around a text or a pair of
//! texts, and the padding that `tokenizer_config.json` names.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rayon::prelude::*;
use serde_json::Value;
use tch::{Device, Kind, Tensor};
use tokenizers::{Encoding, PostProcessor, TruncationDirection, TruncationParams, truncate_encodings};

use crate::data::fields::{Fields, IDS, KINDS, MASK};
use crate::data::{Prompts, Tokens};
use crate::hub::TOKENIZER;
use crate::model::folder::texts::{For, Known, StoredTokenizer};
use crate::model::folder::tokenizer_settings::GivenKinds;
use crate::model::module::intake::{Padding, Side};
use crate::model::preparation::{Example, Preparation, Texts};

/// The most tokens of a text unless the config or the tokenizer says otherwise.
const TOKENS: i64 = 512;

/// How long texts may be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// The most tokens of a text or of a pair; by default as many as the tokenizer's settings say, at most 512.
    pub tokens: Option<i64>,
    /// Whether longer ones are cut, of a pair the longer text first, instead of being refused.
    pub truncate: bool,
    /// The most tokens that the network reads, where its config tells it.
    pub context: Option<i64>,
    /// The number of tokens that the network knows, where its config tells it.
    pub vocabulary: Option<i64>,
    /// The token of padding, where the network's config tells it; it counts if the tokenizer names none, as older folders of RoBERTa do.
    pub padding: Option<i64>,
    /// The token of padding of a network that gives it no position, also where a text spells it.
    pub unplaced: Option<i64>,
}

/// A tokenizer that turns texts and pairs of texts into tokens.
pub struct Tokenizer {
    tokenizer: tokenizers::Tokenizer,
    path: PathBuf,
    known: Known,
    unplaced: Option<u32>,
    /// The cut that texts get that are too long; `None` if they are refused.
    cut: Option<TruncationParams>,
    pub padding: Padding,
    /// The largest number of a token that the network knows.
    pub largest: i64,
    /// The most tokens of a text, or of a pair.
    pub tokens: i64,
    /// The number of values of a token: its id and its place in the mask, and its kind if there are three.
    pub values: usize,
    /// Whether both texts of a pair have kinds of their own; otherwise all tokens have the first kind, as networks of transformers take it.
    kinds: GivenKinds,
    /// The class of transformers that reads the tokenizer, for messages.
    class: String,
}

impl Tokenizer {
    /// Opens the tokenizer of a folder, or the file `tokenizer.json` of one, for a module that takes `inputs` tensors.
    ///
    /// # Errors
    /// Fails if there is none, or if it is damaged.
    pub fn open(path: &Path, limit: Limit, inputs: usize) -> Result<Tokenizer> {
        let advice = " (transformers writes it by AutoTokenizer.from_pretrained(…).save_pretrained(…)), or name it by \
                      checkpoint.tokenizer";
        let known = Known { tokens: limit.vocabulary.unwrap_or(i64::MAX), part: "network" };
        let stored = StoredTokenizer::open(folder(path), &For { network: "a text encoder", advice, known })?;
        // Nothing tells how many tokens an archive knows: those that are added behind the file are not taken for its own.
        let known = Known { tokens: limit.vocabulary.unwrap_or(stored.largest + 1), ..known };
        let most = stored.settings.get("model_max_length").and_then(Value::as_f64);
        // Tokenizers without a limit name a number with thirty digits.
        let usual = most.map_or(TOKENS, |most| (most as i64).clamp(1, TOKENS));
        let usual = limit.context.map_or(usual, |context| context.min(usual));
        let side = stored.settings.get("padding_side").and_then(Value::as_str);
        let side = if side == Some("left") { Side::Left } else { Side::Right };
        let own = stored.tokenizer.get_padding().map(|padding| padding.pad_id).filter(|id| known.has(*id));
        let named = stored.special("pad_token").and_then(|token| stored.tokenizer.token_to_id(token));
        let named = named.filter(|id| known.has(*id));
        let padding = Padding { id: named.or(own).map(i64::from).or(limit.padding).unwrap_or(0), side };
        let all = stored.tokenizer.get_vocab(true).into_values().filter(|id| known.has(*id));
        let largest = all.max().map_or(0, i64::from);
        let cuts_left = stored.settings.get("truncation_side").and_then(Value::as_str) == Some("left");
        let direction = if cuts_left { TruncationDirection::Left } else { TruncationDirection::Right };
        let tokens = limit.tokens.unwrap_or(usual);
        let max_length = tokens as usize;
        let cut = limit.truncate.then(|| TruncationParams { max_length, direction, ..TruncationParams::default() });
        let kinds = stored.kinds();
        let StoredTokenizer { mut tokenizer, path, class, .. } = stored;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        let unplaced = limit.unplaced.and_then(|id| u32::try_from(id).ok());
        Ok(Tokenizer { tokenizer, path, known, unplaced, cut, padding, largest, tokens, values: inputs, kinds, class })
    }

    /// Returns the file of the tokenizer.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the tokens of all texts of the set `name`.
    ///
    /// # Errors
    /// Fails if a text is empty or longer than the module reads, or if an end-of-text token is asked for.
    pub fn prompts(&self, name: &str, prompts: &Prompts) -> Result<Tokens> {
        ensure!(
            !prompts.ended,
            "{name}: its prompts end with the end-of-text token, which a text encoder does not want: set prompts = \
             \"corrected\""
        );
        self.check_room(prompts.seconds.is_some())?;
        let one = |(at, text): (usize, &String)| {
            let second = prompts.seconds.as_ref().map(|seconds| seconds[at].as_str());
            let encoding = self.encode(text, second)?;
            let (found, most) = (encoding.get_ids().len(), self.tokens);
            ensure!(found > 0, "{name}: the text {} has no token", prompts.shown(at));
            ensure!(
                found as i64 <= most,
                "{name}: the text {} has {found} tokens, and checkpoint.max_tokens is {most}: raise it as far as the encoder's \
                 positions allow, or cut long texts by checkpoint.truncate = true",
                prompts.shown(at)
            );
            Ok(encoding)
        };
        let all: Vec<Encoding> = prompts.texts.par_iter().enumerate().map(one).collect::<Result<_>>()?;
        if self.values == 3 && prompts.seconds.is_some() {
            self.tell_kinds();
        }
        let ids: Vec<&[u32]> = all.iter().map(Encoding::get_ids).collect();
        let kinds: Vec<&[u32]> = all.iter().map(Encoding::get_type_ids).collect();
        Ok(if self.values == 3 { Tokens::with_kinds(&ids, &kinds) } else { Tokens::new(&ids) })
    }

    /// Says where both texts of pairs have tokens of one kind only because transformers has changed what is usual.
    fn tell_kinds(&self) {
        if self.kinds == GivenKinds::LeftByClass {
            let [_, settings] = TOKENIZER;
            tracing::warn!(
                "{}: both texts of a pair have tokens of one kind, as {} of transformers 5 has it; version 4 had two kinds: \
                 \"model_input_names\": [\"input_ids\", \"token_type_ids\", \"attention_mask\"] there asks for them",
                self.path.with_file_name(settings).display(),
                if self.class.is_empty() { "TokenizersBackend" } else { &self.class }
            );
        }
    }

    /// Checks that cut texts have room beside the special tokens.
    fn check_room(&self, is_pair: bool) -> Result<()> {
        let added = self.added(is_pair);
        ensure!(
            self.cut.is_none() || self.tokens > added as i64,
            "checkpoint.max_tokens = {}: {} puts {added} special tokens around a {}, which leaves no room for it: raise it",
            self.tokens,
            self.path.display(),
            if is_pair { "pair" } else { "text" }
        );
        Ok(())
    }

    /// Returns the number of special tokens around a text or a pair.
    fn added(&self, is_pair: bool) -> usize {
        self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(is_pair))
    }

    /// Checks that every token of a text gets a position. Positions are counted past the tokens of a mask here, and in transformers past all tokens
    /// of padding.
    fn expect_placed(&self, ids: &[u32]) -> Result<()> {
        match self.unplaced.filter(|id| ids.contains(id)) {
            Some(id) => bail!(
                "has the token `{}` of padding, to which this network gives no position: leave that word out of the text",
                self.tokenizer.id_to_token(id).unwrap_or_default()
            ),
            None => Ok(()),
        }
    }

    /// Returns the tokens of a text, or of a pair, with their kinds and special tokens.
    ///
    /// Both texts of a pair are read whole before they are cut. The crate's own `encode` reads each only as far as the limit, so that it
    /// takes two long texts for equally long, and gives the spare token of an odd number to the second where the first was longer.
    fn encode(&self, text: &str, second: Option<&str>) -> Result<Encoding> {
        let failed = |error: tokenizers::Error| anyhow!("{}: `{text}`: {error}", self.path.display());
        let plain = |text: &str| self.tokenizer.encode(text, false).map_err(failed);
        let (mut first, mut second) = (plain(text)?, second.map(plain).transpose()?);
        if let Some(second) = &mut second {
            second.set_type_ids(vec![1; second.len()]);
        }
        if let Some(cut) = &self.cut {
            let max_length = cut.max_length.saturating_sub(self.added(second.is_some()));
            (first, second) =
                truncate_encodings(first, second, &TruncationParams { max_length, ..*cut }).map_err(failed)?;
        }
        let mut whole = self.tokenizer.post_process(first, second, true).map_err(failed)?;
        if self.kinds != GivenKinds::Given {
            whole.set_type_ids(vec![0; whole.len()]);
        }
        let known = self.known.expect(&self.tokenizer, whole.get_ids());
        known
            .and_then(|()| self.expect_placed(whole.get_ids()))
            .with_context(|| format!("{}: `{text}`", self.path.display()))?;
        Ok(whole)
    }
}

impl Preparation for Tokenizer {
    fn tokens(&self, name: &str, prompts: &Prompts) -> Result<Option<Tokens>> {
        self.prompts(name, prompts).map(Some)
    }

    fn texts(&self) -> Option<Texts> {
        Some(Texts { tokens: self.tokens, kinds: self.values == 3, image: None })
    }

    fn example(&self, _: i64, _: Option<[i64; 2]>) -> Option<Example> {
        let [ids, mask] = Example::texts(self.largest + 1, Example::TOKENS.min(self.tokens), 0);
        let length = mask.size()[1];
        // The second half of every text belongs to the second of a pair.
        let late = Tensor::arange(length, (Kind::Int64, Device::Cpu)).ge(length / 2).to_kind(Kind::Int64);
        let kinds = &mask * late;
        let rows = [(IDS, ids), (MASK, mask), (KINDS, kinds)];
        let texts = Fields::new(rows.into_iter().take(self.values).collect());
        let names = ["input_ids", "attention_mask", "token_type_ids"];
        let taken = names.into_iter().zip(self.padding.arguments(&texts)).collect();
        Some(Example { stored: texts.for_all(), taken, images: None })
    }
}

/// Returns the folder of a tokenizer, of which the file may be named.
pub fn folder(path: &Path) -> &Path {
    let is_file = path.extension().is_some_and(|end| end == "json");
    path.parent()
        .filter(|_| is_file)
        .map_or(path, |parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 400 generated pairs, cut on the right or on the left (scripts/make_tokenizer_goldens.py). Where both texts are cut and an odd
    /// number of tokens is left, the spare one is that of the text that was longer, or of the second where both were equally long.
    #[test]
    fn cut_pairs_are_those_of_transformers() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let pairs = std::fs::read(fixtures.join("tokens/pairs.json")).unwrap();
        let pairs: Vec<Value> = serde_json::from_slice(&pairs).unwrap();
        let bert = fixtures.join("encoder/bert");
        for side in ["right", "left"] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::copy(bert.join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
            let mut settings: Value =
                serde_json::from_slice(&std::fs::read(bert.join("tokenizer_config.json")).unwrap()).unwrap();
            settings["truncation_side"] = side.into();
            std::fs::write(folder.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
            for pair in pairs.iter().filter(|pair| pair["side"] == side) {
                let limit = Limit { tokens: pair["most"].as_i64(), truncate: true, ..Limit::default() };
                let tokenizer = Tokenizer::open(folder.path(), limit, 2).unwrap();
                let text = |at: usize| pair["texts"][at].as_str().unwrap();
                let expected: Vec<u32> = serde_json::from_value(pair["ids"].clone()).unwrap();
                let found = tokenizer.encode(text(0), Some(text(1))).unwrap();
                assert_eq!(found.get_ids(), expected, "{pair}");
            }
        }
        assert!(pairs.len() == 400 && pairs.iter().any(|pair| pair["side"] == "left"));
    }

    /// The kinds of tokens are those that `AutoTokenizer(first, second)` returns for folders of several classes and settings. Where it returns
    /// none, networks take all tokens for ones of the first kind (scripts/make_kind_goldens.py).
    #[test]
    fn kinds_of_pairs_are_those_of_transformers() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let cases: Vec<Value> =
            serde_json::from_slice(&std::fs::read(fixtures.join("tokens/kinds.json")).unwrap()).unwrap();
        let mut counts = [0; 3];
        for case in cases {
            let folder = tempfile::tempdir().unwrap();
            let from = fixtures.join(case["tokenizer"].as_str().unwrap());
            std::fs::copy(from.join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
            for (name, key) in [("tokenizer_config.json", "settings"), ("config.json", "config")] {
                std::fs::write(folder.path().join(name), case[key].to_string()).unwrap();
            }
            let texts = |key: &str| vec![case[key].as_str().unwrap().to_string()];
            let prompts = Prompts { texts: texts("first"), seconds: Some(texts("second")), ended: false };
            let tokenizer = Tokenizer::open(folder.path(), Limit::default(), 3).unwrap();
            let found = tokenizer.prompts("set", &prompts).unwrap().tensor().get(0).get(2).to_kind(Kind::Int64);
            let found = Vec::<i64>::try_from(found).unwrap();
            let returned: Option<Vec<i64>> = serde_json::from_value(case["kinds"].clone()).unwrap();
            counts[tokenizer.kinds as usize] += 1;
            assert_eq!(returned.is_some(), tokenizer.kinds == GivenKinds::Given, "{case}");
            assert_eq!(found, returned.unwrap_or_else(|| vec![0; found.len()]), "{case}");
        }
        assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
    }
}
