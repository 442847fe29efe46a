//! The tokenizer of a stand-in: a byte-level BPE without merges. A word of its list is one token, with and without a space in
//! front, and any other text is one token a byte. Prompts of made data sets consist of words of the list, so that their numbers
//! of tokens are about those of words, as of real tokenizers; they are no more exact than that.

use serde_json::{Map, Value, json};

use crate::data::read::vqa::IMAGE;
use crate::data::small::WORDS;

/// The number of the token at the start of a text.
pub const START: i64 = 1;

/// The number of the token at the end of a text.
pub const END: i64 = 2;

/// The special tokens, by their numbers.
const SPECIAL: [&str; 3] = ["<unk>", "<s>", "</s>"];

/// The words of prompts, and usual label words.
const PROMPTS: &str = "Return the label of the correct answer for the question below . Question : Choices Chioces Answer A ) B C D \
    E F G H Read passage and with words ' true or false '. Passage ( ): True False yes no Yes No positive negative neutral A chat \
    between a curious user an artificial intelligence assistant The gives helpful , detailed polite answers to 's questions USER \
    using single word phrase ASSISTANT ? 1 2 3 4 5 cat";

/// The tokens of a stand-in.
pub struct Vocabulary {
    /// The words, as a text after the byte-level encoding has them. Those of the config's own come last.
    words: Vec<String>,
    /// The words of the config that the list does not have.
    own: Vec<String>,
    sees: bool,
}

impl Vocabulary {
    /// Makes a vocabulary with each of `own` as one token, and with a token for images if the network sees.
    pub fn new(own: &[String], sees: bool) -> Vocabulary {
        let mut words = Vec::new();
        let mut push = |word: &str| {
            // A single byte has its token already.
            let forms = [encoded(word), encoded(&format!(" {word}"))];
            let new = forms.into_iter().filter(|form| form.chars().count() > 1);
            let new: Vec<String> = new.filter(|form| !words.contains(form)).collect();
            let found = !new.is_empty();
            words.extend(new);
            found
        };
        for word in PROMPTS.split_whitespace().chain(WORDS) {
            push(word);
        }
        let own = own.iter().filter(|word| push(word)).cloned().collect();
        Vocabulary { words, own, sees }
    }

    /// Returns the words of the config that the list does not have.
    pub fn own(&self) -> &[String] {
        &self.own
    }

    /// Returns the number of tokens.
    pub fn tokens(&self) -> usize {
        SPECIAL.len() + 256 + self.words.len() + usize::from(self.sees)
    }

    /// Returns the number of the token of an image, if the network sees images: the last one.
    pub fn image(&self) -> Option<i64> {
        self.sees.then(|| self.tokens() as i64 - 1)
    }

    /// Returns `tokenizer.json`.
    pub fn json(&self) -> Value {
        let special = SPECIAL.into_iter().map(String::from);
        let all = special.chain((0..=255).map(|byte| shown(byte).to_string())).chain(self.words.iter().cloned());
        let all = all.chain(self.sees.then(|| IMAGE.to_string()));
        let vocabulary: Map<String, Value> = all.enumerate().map(|(id, token)| (token, id.into())).collect();
        let added = SPECIAL.into_iter().chain(self.sees.then_some(IMAGE)).map(|token| {
            json!({ "id": vocabulary[token], "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
        });
        let added: Vec<Value> = added.collect();
        let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
        let (start, text) = (
            json!({ "SpecialToken": { "id": "<s>", "type_id": 0 } }),
            |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } }),
        );
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": bytes, "decoder": bytes,
            "post_processor": {
                "type": "TemplateProcessing", "single": [start, text("A")], "pair": [start, text("A"), text("B")],
                "special_tokens": { "<s>": { "id": "<s>", "ids": [START], "tokens": ["<s>"] } },
            },
            // A piece of a text that is in the vocabulary as a whole is one token, whatever the merges say.
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                "vocab": vocabulary, "merges": [],
            },
        })
    }

    /// Returns `tokenizer_config.json`.
    pub fn settings(&self) -> Value {
        let [unknown, start, end] = SPECIAL;
        json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": start, "eos_token": end, "unk_token": unknown,
            "add_bos_token": true, "add_eos_token": false, "clean_up_tokenization_spaces": false,
        })
    }
}

/// Returns a text in the characters that stand for its bytes.
fn encoded(text: &str) -> String {
    text.bytes().map(shown).collect()
}

/// Returns the character that stands for a byte in byte-level tokenizers (Radford et al. 2019, GPT-2): the byte's own where it is
/// printable in Latin 1, else one from 256 on, in order.
fn shown(byte: u8) -> char {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !printable(other)).count() as u32;
    char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_characters_of_byte_level_tokenizers() {
        let all: Vec<char> = (0..=255).map(shown).collect();
        let known = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        assert!(all.iter().all(|shown| known.contains(shown)) && known.len() == 256);
        assert_eq!([shown(b' '), shown(b'\n'), shown(b'a'), shown(0xAD)], ['Ġ', 'Ċ', 'a', 'Ń']);
    }

    #[test]
    fn words_are_one_token_and_anything_else_is_bytes() {
        let made = Vocabulary::new(&["A".into(), "zebra".into()], true);
        assert_eq!(made.own(), ["zebra"]);
        let tokenizer: tokenizers::Tokenizer = serde_json::from_value(made.json()).unwrap();
        let ids = |text: &str| tokenizer.encode(text, true).unwrap().get_ids().to_vec();
        assert_eq!(ids("Answer:").len(), 3);
        assert_eq!(ids("zebra zebra").len(), 3);
        let any = "Ein Übermaß 漢字 🙂\n\u{0}x";
        assert!(ids(any).len() > 10);
        assert_eq!(tokenizer.decode(&ids(any), true).unwrap(), any);
        assert_eq!(ids("<image>"), [START as u32, made.image().unwrap() as u32]);
        let largest = tokenizer.get_vocab(true).into_values().max().unwrap();
        assert_eq!(largest as usize + 1, made.tokens());
    }
}
