//! The preparation of samples: what happens between a data set and the network. That of images is here; each kind of texts has its
//! own, in the file of its tokenizer.

use anyhow::Result;
use rand::RngExt;
use tch::{Device, Kind, Tensor};

use super::preprocess::{Normalize, Preprocess};
use crate::base::random::{Purpose, stream};
use crate::data::fields::{Fields, IDS, MASK, PIXELS};
use crate::data::{Prompts, Questions, Spelled, Tokens};

/// The step from samples as a data set stores them to those that the network takes.
pub trait Preparation {
    /// Turns stored samples `[p, B, …]` into prepared ones `[p, B, …]`.
    fn prepare(&self, stored: &Fields) -> Fields {
        stored.again()
    }

    /// Returns the tokens of the texts of the set `name`; `None` if the network takes no texts.
    ///
    /// # Errors
    /// Fails if a text is empty or too long, or if the texts are pairs and the network takes single ones.
    fn tokens(&self, name: &str, prompts: &Prompts) -> Result<Option<Tokens>> {
        let _ = (name, prompts);
        Ok(None)
    }

    /// Returns the tokens of the questions of the set `name`; `None` if the network takes no questions about images.
    ///
    /// # Errors
    /// Fails if a prompt has no image, or if it is too long with its answer.
    fn questions(&self, name: &str, questions: &Questions) -> Result<Option<Spelled>> {
        let _ = (name, questions);
        Ok(None)
    }

    /// Returns the number of pixels per side of what the network sees; 0 where it sees no images.
    fn image_side(&self) -> i64 {
        0
    }

    /// Returns the preprocessing of images, if the network takes nothing else.
    fn images(&self) -> Option<&Preprocess> {
        None
    }

    /// Returns the words of the tokens that the network writes, if it writes some.
    fn wording(&self) -> Option<&dyn Wording> {
        None
    }

    /// Returns the texts that a graph of the network takes; `None` if it takes none, or if a graph cannot prepare them.
    fn texts(&self) -> Option<Texts> {
        None
    }

    /// Returns a few random samples of a network that knows `vocabulary` tokens; `None` if their form is not known. Images have
    /// the size `[height, width]`, that of the network unless it is given.
    fn example(&self, vocabulary: i64, size: Option<[i64; 2]>) -> Option<Example> {
        let _ = (vocabulary, size);
        None
    }
}

/// The words of tokens.
pub trait Wording {
    /// Returns the token at which a text ends.
    fn end(&self) -> Option<u32>;

    /// Returns the text of tokens, without special ones.
    ///
    /// # Errors
    /// Fails if a token is unknown.
    fn text(&self, ids: &[u32]) -> Result<String>;
}

impl Preparation for Preprocess {
    /// Turns the bytes of images into normalised images of the network's own size.
    fn prepare(&self, stored: &Fields) -> Fields {
        Fields::of(PIXELS, self.images(stored.get(PIXELS)))
    }

    fn image_side(&self) -> i64 {
        self.size()
    }

    fn images(&self) -> Option<&Preprocess> {
        Some(self)
    }

    fn example(&self, _: i64, size: Option<[i64; 2]>) -> Option<Example> {
        let images = Example::bytes(size.unwrap_or([self.size(), self.size()]));
        let stored = Fields::of(PIXELS, images.unsqueeze(0));
        let prepared = self.images(&images.unsqueeze(0).to_device(self.device())).squeeze_dim(0);
        let pixels = prepared.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
        Some(Example { stored, taken: vec![("pixels", pixels)], images: Some(images) })
    }
}

/// The preparation of samples that a program has made itself: the network takes them as they are stored.
pub struct AsStored;

impl Preparation for AsStored {}

/// Texts as other programs hand them to a network.
#[derive(Clone, Copy)]
pub struct Texts {
    /// The most tokens of a text.
    pub tokens: i64,
    /// Whether the network takes the kinds of tokens, too.
    pub kinds: bool,
    /// The number of pixels per side of the image beside each text, and their normalisation.
    pub image: Option<(i64, Normalize)>,
}

/// A few random samples.
pub struct Example {
    /// The samples as a data set stores them, `[1, B, …]`.
    pub stored: Fields,
    /// The tensors that other programs take, in the order of their arguments: normalised images `pixels` `[B, 3, S, S]`; or `input_ids` and
    /// `attention_mask` `[B, T]`, with `pixel_values` `[B, 3, S, S]` or `token_type_ids` `[B, T]` where the network takes them.
    pub taken: Vec<(&'static str, Tensor)>,
    /// Images before they are resized, bytes `[B, 3, h, w]`, for a network of images.
    pub images: Option<Tensor>,
}

impl Example {
    /// The number of samples.
    const SAMPLES: i64 = 4;

    /// The most tokens of the text of a sample.
    pub const TOKENS: i64 = 16;

    /// Takes texts, `[B, T]` each.
    pub fn of_texts([ids, mask]: &[Tensor; 2]) -> Example {
        let stored = Fields::new(vec![(IDS, ids.shallow_clone()), (MASK, mask.shallow_clone())]).for_all();
        let taken = vec![("input_ids", ids.shallow_clone()), ("attention_mask", mask.shallow_clone())];
        Example { stored, taken, images: None }
    }

    /// Returns random bytes `[B, 3, height, width]`.
    pub fn bytes([height, width]: [i64; 2]) -> Tensor {
        let mut rng = stream(0, Purpose::Check, &[]);
        let bytes: Vec<u8> = (0..Example::SAMPLES * 3 * height * width).map(|_| rng.random_range(0..=255u8)).collect();
        Tensor::from_slice(&bytes).view([Example::SAMPLES, 3, height, width])
    }

    /// Returns random ids and mask, int64 `[B, T]` each, of texts of different lengths, none of which is shorter than `least`.
    pub fn texts(vocabulary: i64, length: i64, least: i64) -> [Tensor; 2] {
        let mut rng = stream(0, Purpose::Check, &[]);
        let ids: Vec<i64> = (0..Example::SAMPLES * length).map(|_| rng.random_range(0..vocabulary)).collect();
        let lengths: Vec<i64> = (0..Example::SAMPLES).map(|text| (length - text).max(least).max(1)).collect();
        let mask = Tensor::arange(length, (Kind::Int64, Device::Cpu));
        let mask = mask.lt_tensor(&Tensor::from_slice(&lengths).view([-1, 1])).to_kind(Kind::Int64);
        [Tensor::from_slice(&ids).view([Example::SAMPLES, length]) * &mask, mask]
    }
}
