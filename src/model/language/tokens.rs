//! The tokenizer of a language network: `tokenizer.json`, with what `tokenizer_config.json` says of the tokens at the start
//! and the end of a text.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use rayon::prelude::*;
use serde_json::Value;

use crate::data::{Prompts, Tokens};
use crate::model::chat::Chat;
use crate::model::folder::TOKENIZER;
use crate::model::folder::texts::{For, StoredTokenizer};
use crate::model::preparation::{Example, Preparation, Texts, Wording};

/// A tokenizer that turns prompts into tokens.
pub struct Tokenizer {
    tokenizer: tokenizers::Tokenizer,
    path: PathBuf,
    start: Option<Edge>,
    end: Option<Edge>,
    /// The token of what the vocabulary does not know.
    unknown: Option<u32>,
    /// The most tokens of a prompt.
    tokens: usize,
    /// The chat in which prompts stand.
    chat: Option<Chat>,
}

/// A special token at an edge of a text.
struct Edge {
    id: u32,
    /// Whether it is added to every text; `None` where `tokenizer.json` alone decides.
    added: Option<bool>,
}

impl Tokenizer {
    /// Opens the tokenizer of a folder, for a network that knows `vocabulary` tokens.
    ///
    /// # Errors
    /// Fails if there is none, if it is damaged, or if it has a token that the network does not know.
    pub fn open(folder: &Path, vocabulary: i64, tokens: usize) -> Result<Tokenizer> {
        let advice = " (transformers writes it by AutoTokenizer.from_pretrained(…).save_pretrained(…))";
        let reader = For { network: "a language network", advice, vocabulary, part: "network" };
        let stored = StoredTokenizer::open(folder, &reader)?;
        let special = |name: &str| stored.tokenizer.token_to_id(stored.special(name)?);
        let edge = |token: &str, added: &str| {
            let added = stored.settings.get(added).and_then(Value::as_bool);
            special(token).map(|id| Edge { id, added })
        };
        let (start, end) = (edge("bos_token", "add_bos_token"), edge("eos_token", "add_eos_token"));
        let unknown = special("unk_token");
        let StoredTokenizer { mut tokenizer, path, .. } = stored;
        // Prompts are neither filled nor cut here.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        Ok(Tokenizer { tokenizer, path, start, end, unknown, tokens, chat: None })
    }

    /// Puts every prompt into a chat, if there is one.
    pub fn in_chat(self, chat: Option<Chat>) -> Tokenizer {
        Tokenizer { chat, ..self }
    }

    /// Returns the tokens of a text with the special tokens at its edges.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot read the text.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.encode(text, true)?;
        if let Some(Edge { id, added: Some(added) }) = self.start {
            match (added, ids.first() == Some(&id)) {
                (true, false) => ids.insert(0, id),
                (false, true) => drop(ids.remove(0)),
                _ => {}
            }
        }
        if let Some(Edge { id, added: Some(added) }) = self.end {
            match (added, ids.last() == Some(&id)) {
                (true, false) => ids.push(id),
                (false, true) => drop(ids.pop()),
                _ => {}
            }
        }
        Ok(ids)
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
        self.start.as_ref().map(|edge| edge.id)
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
        let found = self.tokenizer.encode(text, special);
        Ok(found.map_err(|error| anyhow!("{}: `{text}`: {error}", self.path.display()))?.get_ids().to_vec())
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
            ensure!(found > 0, "{name}: prompt {at} has no token");
            ensure!(
                found <= most,
                "{name}: prompt {at} has {found} tokens, and checkpoint.max_tokens is {most}: raise it as far as the \
                 network's context allows, or leave long prompts out of the file"
            );
            Ok(ids)
        };
        let all = prompts.texts.par_iter().enumerate().map(one).collect::<Result<Vec<Vec<u32>>>>()?;
        Ok(Tokens::new(&all))
    }
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
        self.end.as_ref().map(|edge| edge.id)
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
