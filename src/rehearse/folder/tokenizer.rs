//! The tokenizer of a stand-in: a byte-level BPE without merges. A word of its list is one token, with and without a space in
//! front, and any other text is one token a byte. Prompts of made data sets consist of words of the list, so that their numbers
//! of tokens are about those of words, as of real tokenizers; they are no more exact than that.

use serde_json::{Map, Value, json};

use crate::data::read::vqa::IMAGE;
use crate::data::small::WORDS;
use crate::model::kind::{END, Marks, PADDING, START, UNKNOWN};

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
    marks: Marks,
}

impl Vocabulary {
    /// Makes a vocabulary with each of `own` as one token, and with special tokens.
    pub fn new(own: &[String], marks: Marks) -> Vocabulary {
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
        Vocabulary { words, own, marks }
    }

    /// Returns the words of the config that the list does not have.
    pub fn own(&self) -> &[String] {
        &self.own
    }

    /// Returns the number of tokens.
    pub fn tokens(&self) -> usize {
        self.marks.special().len() + 256 + self.words.len() + usize::from(self.sees())
    }

    fn sees(&self) -> bool {
        self.marks == Marks::StartAndImage
    }

    /// Returns the number of the token of an image, if the network sees images: the last one.
    pub fn image(&self) -> Option<i64> {
        self.sees().then(|| self.tokens() as i64 - 1)
    }

    /// Returns `tokenizer.json`.
    pub fn json(&self) -> Value {
        let special = self.marks.special().iter().map(|name| name.to_string());
        let all = special.chain((0..=255).map(|byte| shown(byte).to_string())).chain(self.words.iter().cloned());
        let all = all.chain(self.sees().then(|| IMAGE.to_string()));
        let vocabulary: Map<String, Value> = all.enumerate().map(|(id, token)| (token, id.into())).collect();
        let added = self.marks.special().iter().copied().chain(self.sees().then_some(IMAGE)).map(|token| {
            json!({ "id": vocabulary[token], "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
        });
        let added: Vec<Value> = added.collect();
        let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": bytes, "decoder": bytes,
            "post_processor": self.template(),
            // A piece of a text that is in the vocabulary as a whole is one token, whatever the merges say.
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                "vocab": vocabulary, "merges": [],
            },
        })
    }

    /// Returns the special tokens around a text and around a pair, where they are.
    fn template(&self) -> Value {
        let mark = |name: &str, text: i64| json!({ "SpecialToken": { "id": name, "type_id": text } });
        let text = |id: &str, text: i64| json!({ "Sequence": { "id": id, "type_id": text } });
        let (single, pair) = match self.marks {
            Marks::Start | Marks::StartAndImage => {
                (vec![mark(START, 0), text("A", 0)], vec![mark(START, 0), text("A", 0), text("B", 0)])
            }
            Marks::Around => {
                let first = vec![mark(START, 0), text("A", 0), mark(END, 0)];
                let second = vec![mark(END, 0), text("B", 1), mark(END, 1)];
                (first.clone(), [first, second].concat())
            }
        };
        let special =
            |name: &str| (name.to_string(), json!({ "id": name, "ids": [self.marks.id(name)], "tokens": [name] }));
        let named: &[&str] = if self.marks == Marks::Around { &[START, END] } else { &[START] };
        let named: Map<String, Value> = named.iter().map(|name| special(name)).collect();
        json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": named })
    }

    /// Returns `tokenizer_config.json`.
    pub fn settings(&self) -> Value {
        let mut settings = json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": START, "eos_token": END, "unk_token": UNKNOWN,
            "clean_up_tokenization_spaces": false,
        });
        if self.marks == Marks::Around {
            settings["pad_token"] = json!(PADDING);
        }
        settings
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
        let made = Vocabulary::new(&["A".into(), "zebra".into()], Marks::StartAndImage);
        assert_eq!(made.own(), ["zebra"]);
        let tokenizer: tokenizers::Tokenizer = serde_json::from_value(made.json()).unwrap();
        let ids = |text: &str| tokenizer.encode(text, true).unwrap().get_ids().to_vec();
        assert_eq!(ids("Answer:").len(), 3);
        assert_eq!(ids("zebra zebra").len(), 3);
        let any = "Ein Übermaß 漢字 🙂\n\u{0}x";
        assert!(ids(any).len() > 10);
        assert_eq!(tokenizer.decode(&ids(any), true).unwrap(), any);
        assert_eq!(ids("<image>"), [made.marks.id(START) as u32, made.image().unwrap() as u32]);
        let largest = tokenizer.get_vocab(true).into_values().max().unwrap();
        assert_eq!(largest as usize + 1, made.tokens());
    }
}
