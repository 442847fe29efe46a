//! The preparation of samples between a data set and the network. That of images is here; each kind of texts has its
//! own, in the file of its tokenizer.

use std::fmt;

use anyhow::Result;
use rand::RngExt;
use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::base::random::{Purpose, stream};
use crate::base::tensor::wide;
use crate::data::fields::{Fields, IDS, MASK, PIXELS};
use crate::data::{Interpolation, Prompts, Questions, Spelled, Tokens};
use crate::schema::{Bounds, Reader, limits, words};

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
    fn tokens(&self, _name: &str, _prompts: &Prompts) -> Result<Option<Tokens>> {
        Ok(None)
    }

    /// Returns the tokens of the questions of the set `name`; `None` if the network takes no questions about images.
    ///
    /// # Errors
    /// Fails if a prompt has no image, or if it is too long with its answer.
    fn questions(&self, _name: &str, _questions: &Questions) -> Result<Option<Spelled>> {
        Ok(None)
    }

    /// Returns the number of pixels per side of the images that the network sees; 0 where it sees none.
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
    fn example(&self, _vocabulary: i64, _size: Option<[i64; 2]>) -> Option<Example> {
        None
    }
}

/// The words of tokens.
pub trait Wording {
    /// Returns the token of a word.
    ///
    /// # Errors
    /// Fails if the tokenizer does not know the word, or if the word is none or several tokens.
    fn token_of(&self, word: &str) -> Result<u32>;

    /// Returns the token at which a text ends.
    fn end(&self) -> Option<u32>;

    /// Returns the tokens at which a text that is written ends: that one, and those which the folder names for writing.
    fn ends(&self) -> &[u32];

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
    /// `attention_mask` `[B, T]`, with `token_type_ids` `[B, T]` and `pixel_values` `[B, 3, S, S]` where the network takes them.
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

/// The mean and standard deviation of each colour channel, for pixels in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Normalize {
    pub mean: [f64; 3],
    pub std: [f64; 3],
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{{ mean = {:?}, std = {:?} }}", self.mean, self.std)
    }
}

impl Normalize {
    /// The values of OpenAI's CLIP.
    pub const CLIP: Normalize =
        Normalize { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] };
    /// The values that take pixels to [-1, 1].
    pub const HALVES: Normalize = Normalize { mean: [0.5; 3], std: [0.5; 3] };
    pub const IMAGENET: Normalize = Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

    /// Returns the value of the key `normalize` that means these numbers.
    pub fn in_config(&self) -> String {
        match *self {
            Normalize::CLIP => "\"clip\"".to_string(),
            Normalize::IMAGENET => "\"imagenet\"".to_string(),
            own => own.to_string(),
        }
    }
}

words! {
    /// The published normalizations.
    enum Published { Clip = "clip", Imagenet = "imagenet" }
}

impl Normalize {
    /// Reads the key `normalize`, a word or a table; `usual` is what the checkpoint's own folder says.
    pub fn read(reader: &Reader, usual: Option<Normalize>) -> Normalize {
        if let (Some(usual), false) = (usual, reader.has("normalize")) {
            return usual;
        }
        if !reader.is_table("normalize") {
            let field = reader.choice("normalize").about(
                "Mean and standard deviation of the pixels that the checkpoint was trained with. A publisher's folder says its \
                 own; for an archive or a file of weights alone, the key is required.",
            );
            // Whether it is required depends on the checkpoint, which the list of keys does not know.
            let published = match reader.is_surveyed() {
                true => field.optional().unwrap_or(Published::Clip),
                false => field.required_or(Published::Clip, WHAT_NORMALIZE),
            };
            return match published {
                Published::Clip => Normalize::CLIP,
                Published::Imagenet => Normalize::IMAGENET,
            };
        }
        let section = reader.section("normalize");
        let three = |key: &str, bounds: Bounds| -> [f64; 3] {
            let values = section.floats(key, bounds).about("Red, green and blue, for pixels from 0 to 1.").required();
            <[f64; 3]>::try_from(values.as_slice()).unwrap_or_else(|_| {
                if !values.is_empty() {
                    section.problem(key, "must be three numbers: red, green, blue");
                }
                [1.0; 3]
            })
        };
        let normalize = Normalize { mean: three("mean", limits::any()), std: three("std", limits::above(0.0)) };
        section.finish();
        normalize
    }
}

const WHAT_NORMALIZE: &str =
    "\"clip\", \"imagenet\", or { mean = [r, g, b], std = [r, g, b] }: what the checkpoint was trained with";

/// The preprocessing of images: their size, normalization and filter.
pub struct Preprocess {
    size: i64,
    mean: Tensor,
    std: Tensor,
    interpolation: Interpolation,
    kind: Kind,
}

impl Preprocess {
    /// Preprocesses images to `size` pixels per side, on a device and in a type.
    pub fn new(
        size: i64,
        normalize: Normalize,
        interpolation: Interpolation,
        (device, kind): (Device, Kind),
    ) -> Preprocess {
        let channels =
            |values: &[f64; 3]| Tensor::from_slice(values).to_kind(wide(kind)).to_device(device).view([1, 3, 1, 1]);
        let (mean, std) = (channels(&normalize.mean), channels(&normalize.std));
        Preprocess { size, mean, std, interpolation, kind }
    }

    /// Returns the number of pixels per side of the images that the network sees.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Returns the device of images.
    pub fn device(&self) -> Device {
        self.mean.device()
    }

    /// Turns bytes `[K, 3, h, w]` into pixels in [0, 1].
    pub fn unit(&self, bytes: &Tensor) -> Tensor {
        bytes.to_kind(wide(self.kind)) / 255.0
    }

    /// Returns the filter that resizes images.
    pub fn interpolation(&self) -> Interpolation {
        self.interpolation
    }

    /// Resizes pixels in [0, 1] `[K, 3, h, w]` to the network's size, antialiased and clipped; differentiable.
    pub fn resize(&self, pixels: &Tensor) -> Tensor {
        let size = pixels.size();
        if size[2] == self.size && size[3] == self.size {
            return pixels.shallow_clone();
        }
        let to = [self.size, self.size];
        match self.interpolation {
            // Bicubic interpolation can leave [0, 1].
            Interpolation::Bicubic => pixels.internal_upsample_bicubic2d_aa(to, false, None, None).clamp(0.0, 1.0),
            Interpolation::Bilinear => pixels.internal_upsample_bilinear2d_aa(to, false, None, None),
        }
    }

    /// Normalises pixels in [0, 1] `[K, 3, S, S]` into images in the compute type.
    pub fn normalise(&self, pixels: &Tensor) -> Tensor {
        ((pixels - &self.mean) / &self.std).to_kind(self.kind)
    }

    /// Turns pixels in [0, 1] `[p, B, 3, h, w]`, through which gradients flow, into normalised images `[p, B, 3, S, S]`.
    pub fn pixels(&self, pixels: &Tensor) -> Fields {
        let size = pixels.size();
        let normalised = self.normalise(&self.resize(&pixels.flatten(0, 1)));
        Fields::of(PIXELS, normalised.view([size[0], size[1], 3, self.size, self.size]))
    }

    /// Turns bytes `[p, B, 3, h, w]` into normalised images `[p, B, 3, S, S]`.
    pub fn images(&self, bytes: &Tensor) -> Tensor {
        // In place where no other code holds the tensor: a batch is too large to allocate again for each operation.
        let mut pixels = self.resize(&bytes.flatten(0, 1).to_kind(wide(self.kind)).g_div_scalar_(255.0));
        let images = pixels.g_sub_(&self.mean).g_div_(&self.std).to_kind(self.kind);
        images.view([bytes.size()[0], -1, 3, self.size, self.size])
    }
}
