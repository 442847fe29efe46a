//! The preparation of samples: what happens between a data set and the network.

use tch::Tensor;

use super::language::Tokenizer;
use super::llava::QuestionTokenizer;
use super::preprocess::Preprocess;

/// The step from samples as a data set stores them to those that the network takes.
pub enum Preparation {
    /// Images are stored as bytes; the network takes normalised images of its own size.
    Images(Preprocess),
    /// The network takes the tokens of texts, which this tokenizer gives.
    Texts(Box<Tokenizer>),
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
            Preparation::Texts(_) | Preparation::Questions(_) | Preparation::AsStored => stored.shallow_clone(),
        }
    }
}
