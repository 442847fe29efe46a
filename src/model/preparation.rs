//! The preparation of samples: what happens between a data set and the network.

use anyhow::{Result, ensure};
use tch::Tensor;

use super::language::Tokenizer;
use super::llava::QuestionTokenizer;
use super::module;
use super::preprocess::Preprocess;
use crate::data::{Prompts, Tokens};

/// The step from samples as a data set stores them to those that the network takes.
pub enum Preparation {
    /// Images are stored as bytes; the network takes normalised images of its own size.
    Images(Preprocess),
    /// The network takes the tokens of texts, which this tokenizer gives.
    Texts(Box<Tokenizer>),
    /// The network takes the tokens of texts or of pairs of texts with their special tokens.
    Encoded(Box<module::Tokenizer>),
    /// The network takes the tokens of questions, which this tokenizer gives, with the bytes of images.
    Questions(Box<QuestionTokenizer>),
    /// The network takes samples as they are stored, such as token ids with their mask.
    AsStored,
}

impl Preparation {
    /// Turns stored samples `[p, B, …]` into prepared ones `[p, B, …]`.
    pub fn prepare(&self, stored: &Tensor) -> Tensor {
        match self {
            Preparation::Images(preprocess) => preprocess.images(stored),
            Preparation::Texts(_) | Preparation::Questions(_) | Preparation::Encoded(_) | Preparation::AsStored => {
                stored.shallow_clone()
            }
        }
    }

    /// Returns the tokens of the texts of the set `name`; `None` if the network takes no texts.
    ///
    /// # Errors
    /// Fails if a text is empty or too long, or if the texts are pairs and the network takes single ones.
    pub fn tokens(&self, name: &str, prompts: &Prompts) -> Result<Option<Tokens>> {
        match self {
            Preparation::Texts(tokenizer) => {
                ensure!(
                    prompts.seconds.is_none(),
                    "{name}: has pairs of texts, which are for text encoders (checkpoint.kind = \"module\"); a language \
                     network reads one prompt"
                );
                tokenizer.prompts(name, prompts).map(Some)
            }
            Preparation::Encoded(tokenizer) => tokenizer.prompts(name, prompts).map(Some),
            Preparation::Images(_) | Preparation::Questions(_) | Preparation::AsStored => Ok(None),
        }
    }
}
