//! The text around every prompt by which a network that has been trained on chats is asked. A publisher's folder has a program for it
//! (`chat_template`), which bella does not run: the config states what the program writes around one prompt.

use serde::{Serialize, Serializer};

use crate::schema::{Field, Reader, Setting};

/// The place of the prompt.
const PROMPT: &str = "{prompt}";

/// The text in front of a prompt and behind it. Special tokens are spelled out in it, so that a tokenizer adds none at the edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chat {
    before: String,
    after: String,
}

impl Chat {
    /// Reads a text with `{prompt}` in the prompt's place.
    ///
    /// # Errors
    /// Fails with the reason if a text does not have it exactly once.
    pub fn parse(text: &str) -> Result<Chat, String> {
        match text.split(PROMPT).collect::<Vec<_>>()[..] {
            [before, after] => Ok(Chat { before: before.into(), after: after.into() }),
            [_] => Err(format!("must have {PROMPT} where the prompt belongs")),
            _ => Err(format!("must have {PROMPT} once")),
        }
    }

    /// Returns the text of a prompt.
    pub fn around(&self, prompt: &str) -> String {
        [&self.before, prompt, &self.after].concat()
    }
}

impl Serialize for Chat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.around(PROMPT).serialize(serializer)
    }
}

impl Setting for Chat {
    type Range = ();

    fn field(reader: &Reader, key: &str, (): ()) -> Field<Chat> {
        reader.string(key).map(|text| {
            Chat::parse(&text).unwrap_or_else(|why| {
                reader.problem(key, why);
                Chat::stand_in()
            })
        })
    }

    fn stand_in() -> Chat {
        Chat::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden texts are prompts of BayesAdapt in Qwen 3's template, without thinking (scripts/make_bayesadapt_prompt_goldens.py).
    #[test]
    fn prompts_stand_in_the_chat_of_the_template() {
        let chat = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
        let chat = Chat::parse(chat).unwrap();
        let golden = include_str!("../../tests/fixtures/authors/bayesadapt_prompts.json");
        let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
        for (name, set) in golden.as_object().unwrap() {
            let texts = |key: &str| -> Vec<String> { serde_json::from_value(set[key].clone()).unwrap() };
            let found: Vec<String> = texts("instruct").iter().map(|prompt| chat.around(prompt)).collect();
            assert_eq!(found, texts("chat"), "{name}");
        }
    }

    #[test]
    fn a_prompt_has_one_place() {
        assert_eq!(Chat::parse("a {prompt} b").unwrap().around("{x}"), "a {x} b");
        assert_eq!(Chat::parse("no place"), Err("must have {prompt} where the prompt belongs".into()));
        assert_eq!(Chat::parse("{prompt}{prompt}"), Err("must have {prompt} once".into()));
    }
}
