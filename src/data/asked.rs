//! Questions about images on the device: tokens stay there, and images come with each batch.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use tch::{Device, Kind, Tensor};

use super::fields::{Fields, PIXELS, of_texts};
use super::stream::{Pick, Source, View};
use super::texts::{Learnt, Questions, Tokens};
use crate::base::tensor::{first_line, upload};

/// The part of a text that a batch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// The prompts alone, after which a network writes.
    Prompts,
    /// The prompts with their answers, from which a network learns.
    Answered,
}

/// N questions that can be served in batches.
pub(super) struct Asked {
    pub images: Arc<Source>,
    image_of: Vec<u32>,
    prompts: OnDevice,
    answered: OnDevice,
    /// The number of tokens of each answer with its end, `[N]`; `None` where classes are learnt.
    answers: Option<Vec<usize>>,
}

/// Tokens with their mask, and with their kinds if these are kept, `[N, 2 or 3, T]`, and the number of tokens of each text, `[N]`.
struct OnDevice {
    numbers: Tensor,
    lengths: Vec<u32>,
}

impl OnDevice {
    fn new(tokens: &Tokens, device: Device) -> OnDevice {
        OnDevice { numbers: tokens.tensor().to_device(device), lengths: tokens.lengths.clone() }
    }

    /// Returns some texts, `[K, 2 or 3, T]`, where T is the length of the longest of them.
    fn some(&self, indices: &[u32], index: &Tensor) -> Tensor {
        let longest = indices.iter().map(|i| self.lengths[*i as usize]).max().unwrap_or(0);
        self.numbers.narrow(2, 0, i64::from(longest)).index_select(0, index)
    }
}

impl Asked {
    /// Takes the questions of the split `name`, with what is learnt of them: their targets `[N, A, 2]`, or their labels `[N]`.
    pub fn new(questions: Questions, name: &str, labels: &[u32], device: Device) -> Result<(Asked, Tensor)> {
        let Some(spelled) = questions.tokens else {
            bail!("{name}: its questions need the tokenizer of a network that reads images and texts")
        };
        let count = spelled.prompts.lengths.len() as i64;
        let learnt = match questions.learnt {
            Learnt::Answer => Tensor::from_slice(&spelled.targets()).view([count, spelled.longest_answer() as i64, 2]),
            Learnt::Class => Tensor::from_slice(&labels.iter().map(|label| i64::from(*label)).collect::<Vec<_>>()),
        };
        let answers = || (0..count as usize).map(|i| spelled.answer(i)).collect();
        let asked = Asked {
            images: Arc::new(Source { images: questions.images.into(), views: None }),
            image_of: questions.image_of,
            prompts: OnDevice::new(&spelled.prompts, device),
            answered: OnDevice::new(&spelled.answered, device),
            answers: (questions.learnt == Learnt::Answer).then(answers),
        };
        Ok((asked, learnt.to_device(device)))
    }

    /// Returns the images of some questions.
    pub fn picks(&self, indices: &[u32]) -> Vec<Pick> {
        indices.iter().map(|i| Pick { image: self.image_of[*i as usize], view: View::Plain }).collect()
    }

    /// Returns `all: [N, …]` that is learnt, cut to the length A' of the longest answer among some questions, `[N, A', 2]`.
    pub fn cut(&self, indices: &[u32], all: &Tensor) -> Tensor {
        let Some(answers) = &self.answers else { return all.shallow_clone() };
        let longest = indices.iter().map(|i| answers[*i as usize]).max().unwrap_or(0);
        all.narrow(1, 0, longest as i64)
    }

    /// Returns some questions, `[K, …]`: token ids, their mask, their kinds if these are kept, and the bytes of their images.
    pub fn samples(&self, indices: &[u32], pixels: &[u8], text: Text) -> Result<Fields> {
        let all = if text == Text::Prompts { &self.prompts } else { &self.answered };
        let device = all.numbers.device();
        let index: Vec<i64> = indices.iter().map(|i| i64::from(*i)).collect();
        let tokens = all.some(indices, &upload(&Tensor::from_slice(&index), device));
        let (height, width) = self.images.images.size();
        let size = [indices.len() as i64, 3, height as i64, width as i64];
        let bytes = Tensor::f_from_data_size(pixels, &size, Kind::Uint8).map_err(|e| anyhow!("{}", first_line(&e)))?;
        Ok(of_texts(&tokens).and(PIXELS, upload(&bytes, device)))
    }
}
