//! The tokenizer of a language network: `tokenizer.json`, which alone says what stands at the edges of a text, with the names that
//! `tokenizer_config.json` gives to tokens. Its `add_bos_token` and `add_eos_token` count for nothing beside that file, as in transformers 5.
//! Texts that are written end at the tokenizer's own end-of-text token, and at the tokens that `generation_config.json` names.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rayon::prelude::*;
use serde_json::Value;

use crate::base::files::{is_there, read_json};
use crate::data::{Prompts, Tokens};
use crate::hub::{TOKENIZER, WRITING};
use crate::model::chat::Chat;
use crate::model::folder::config_file;
use crate::model::folder::texts::{For, Known, StoredTokenizer};
use crate::model::preparation::{Example, Preparation, Texts, Wording};

/// A tokenizer that turns prompts into tokens.
pub struct Tokenizer {
    tokenizer: tokenizers::Tokenizer,
    path: PathBuf,
    known: Known,
    /// The tokens that begin and end a text, whether they are put there or not.
    start: Option<u32>,
    end: Option<u32>,
    /// The tokens at which texts that are written end.
    ends: Vec<u32>,
    /// The token of what the vocabulary does not know.
    unknown: Option<u32>,
    /// The most tokens of a prompt.
    tokens: usize,
    /// The chat in which prompts stand.
    chat: Option<Chat>,
}

impl Tokenizer {
    /// Opens the tokenizer of a folder, for a network that knows `vocabulary` tokens.
    ///
    /// # Errors
    /// Fails if there is none, if it is damaged, if its own vocabulary, without added tokens, is larger than the network's, or if the folder names ends of texts that
    /// are no tokens.
    pub fn open(folder: &Path, vocabulary: i64, tokens: usize) -> Result<Tokenizer> {
        let advice = " (transformers writes it by AutoTokenizer.from_pretrained(…).save_pretrained(…))";
        let known = Known { tokens: vocabulary, part: "network" };
        let stored = StoredTokenizer::open(folder, &For { network: "a language network", advice, known })?;
        let special = |name: &str| stored.tokenizer.token_to_id(stored.special(name)?).filter(|id| known.has(*id));
        // Older folders, such as GPT-2's, name their tokens in the network's config alone.
        let config = config_file(folder).and_then(|file| read_json(&file).ok()).unwrap_or_default();
        let of_config = |key: &str| config[key].as_i64().filter(|id| (0..vocabulary).contains(id)).map(|id| id as u32);
        let start = special("bos_token").or_else(|| of_config("bos_token_id"));
        let end = special("eos_token").or_else(|| of_config("eos_token_id"));
        let ends = end.into_iter().chain(ends_of_writing(folder, &config)?).collect();
        let unknown = special("unk_token");
        let StoredTokenizer { mut tokenizer, path, .. } = stored;
        // Prompts are neither filled nor cut here.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        Ok(Tokenizer { tokenizer, path, known, start, end, ends, unknown, tokens, chat: None })
    }

    /// Puts every prompt into a chat, if there is one.
    pub fn in_chat(self, chat: Option<Chat>) -> Tokenizer {
        Tokenizer { chat, ..self }
    }

    /// Returns the tokens of a text with the special tokens at its edges.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot read the text, or if the network does not know a token of it.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        self.encode(text, true)
    }

    /// Returns the tokens of a text with the special tokens at its start alone.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot read the text.
    pub fn started(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.tokens(text)?;
        if ids.len() > 1 && ids.last().copied() == self.end() {
            ids.pop();
        }
        Ok(ids)
    }

    /// Returns the token that begins a text, whether one is put there or not; `None` if the tokenizer names none.
    pub fn start(&self) -> Option<u32> {
        self.start
    }

    /// Returns the tokens of a text without special tokens at its edges.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot read the text.
    pub fn plain(&self, text: &str) -> Result<Vec<u32>> {
        self.encode(text, false)
    }

    /// Returns the most tokens of a prompt.
    pub fn most(&self) -> usize {
        self.tokens
    }

    fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let found = self.tokenizer.encode(text, special).map_err(|error| anyhow!("{error}"));
        let checked = found.and_then(|found| self.known.expect(&self.tokenizer, found.get_ids()).map(|()| found));
        Ok(checked.with_context(|| format!("{}: `{text}`", self.path.display()))?.get_ids().to_vec())
    }

    /// Returns the tokens of all prompts of the set `name`, each in its chat.
    ///
    /// # Errors
    /// Fails if a prompt is empty or longer than the network reads, or if the end-of-text token is asked for and there is
    /// none.
    pub fn prompts(&self, name: &str, prompts: &Prompts) -> Result<Tokens> {
        let end = match (prompts.ended, self.end()) {
            (true, None) => bail!(
                "{name}: its prompts end with the end-of-text token, and {} names none (eos_token)",
                self.path.with_file_name(TOKENIZER[1]).display()
            ),
            (true, end) => end,
            (false, _) => None,
        };
        let one = |(at, text): (usize, &String)| {
            let mut ids = match &self.chat {
                Some(chat) => self.plain(&chat.around(text))?,
                None => self.tokens(text)?,
            };
            ids.extend(end.filter(|end| ids.last() != Some(end)));
            let (found, most) = (ids.len(), self.tokens);
            ensure!(found > 0, "{name}: the prompt {} has no token", prompts.shown(at));
            ensure!(
                found <= most,
                "{name}: the prompt {} has {found} tokens, and checkpoint.max_tokens is {most}: raise it as far as the \
                 network's context allows, or leave long prompts out of the file",
                prompts.shown(at)
            );
            Ok(ids)
        };
        let all = prompts.texts.par_iter().enumerate().map(one).collect::<Result<Vec<Vec<u32>>>>()?;
        Ok(Tokens::new(&all))
    }
}

/// Returns the tokens at which transformers ends texts: those in `eos_token_id` of `generation_config.json`, or of the network's config where
/// there is no such file.
fn ends_of_writing(folder: &Path, config: &Value) -> Result<Vec<u32>> {
    const KEY: &str = "eos_token_id";
    let path = folder.join(WRITING);
    let (shown, said) = match is_there(&path) {
        true => (path.display().to_string(), read_json(&path)?.get(KEY).cloned().unwrap_or_default()),
        false => (folder.join("config.json").display().to_string(), config[KEY].clone()),
    };
    let all = match said {
        Value::Null => Vec::new(),
        Value::Array(all) => all,
        one => vec![one],
    };
    // Older configs have −1 for no token.
    let named = all.into_iter().filter(|id| id != -1);
    let read = |id: Value| {
        let token = id.as_u64().and_then(|id| u32::try_from(id).ok());
        token.with_context(|| {
            format!("{shown}: {KEY} has {id}: must be the number of a token, or a list of such numbers")
        })
    };
    named.map(read).collect()
}

impl Wording for Tokenizer {
    fn token_of(&self, word: &str) -> Result<u32> {
        match self.encode(word, false)?[..] {
            [id] if Some(id) == self.unknown => {
                bail!("the label word `{word}` is unknown to this tokenizer: choose words that are in its vocabulary")
            }
            [id] => Ok(id),
            ref all => {
                let parts: Vec<String> =
                    all.iter().map(|id| self.tokenizer.id_to_token(*id).unwrap_or_default()).collect();
                bail!(
                    "the label word `{word}` is {} tokens of this tokenizer ({}): choose words of one token",
                    parts.len(),
                    parts.join(" ")
                )
            }
        }
    }

    fn end(&self) -> Option<u32> {
        self.end
    }

    fn ends(&self) -> &[u32] {
        &self.ends
    }

    fn text(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer.decode(ids, true).map_err(|error| anyhow!("{}: {error}", self.path.display()))
    }
}

impl Preparation for Tokenizer {
    fn tokens(&self, name: &str, prompts: &Prompts) -> Result<Option<Tokens>> {
        ensure!(
            prompts.seconds.is_none(),
            "{name}: has pairs of texts, which are for text encoders (checkpoint.kind = \"module\"); a language network reads one \
             prompt"
        );
        self.prompts(name, prompts).map(Some)
    }

    fn wording(&self) -> Option<&dyn Wording> {
        Some(self)
    }

    fn texts(&self) -> Option<Texts> {
        Some(Texts { kinds: false, tokens: self.tokens as i64, image: None })
    }

    fn example(&self, vocabulary: i64, _: Option<[i64; 2]>) -> Option<Example> {
        Some(Example::of_texts(&Example::texts(vocabulary, Example::TOKENS.min(self.tokens as i64), 0)))
    }
}
