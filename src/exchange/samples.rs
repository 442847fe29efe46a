//! Random samples of a network, as bella stores them and as the programs that load an export take them.

use anyhow::{Result, bail};
use rand::RngExt;
use tch::{Device, Kind, Tensor};

use crate::base::random::{Purpose, stream};
use crate::model::language::EMBEDDING;
use crate::model::llava::QuestionTokenizer;
use crate::model::{CheckpointSpec, Input, Model, Preparation, Preprocess};

/// The number of samples.
const SAMPLES: i64 = 4;

/// The most tokens of the text of a sample.
const TOKENS: i64 = 16;

/// Samples of a network.
pub struct Samples {
    /// The samples as a data set stores them, `[1, B, …]`.
    pub stored: Tensor,
    /// The tensors that other programs take, in the order of their arguments: normalised images `pixels` `[B, 3, S, S]`; or `input_ids` and
    /// `attention_mask` `[B, T]`, with `pixel_values` `[B, 3, S, S]` or `token_type_ids` `[B, T]` where the network takes them.
    pub taken: Vec<(&'static str, Tensor)>,
    /// Images before they are resized, bytes `[B, 3, h, w]`, for a network of images.
    pub images: Option<Tensor>,
}

impl Samples {
    /// Makes samples of a network; images have the size `[height, width]`, that of the network unless it is given.
    ///
    /// # Errors
    /// Fails if images cannot be prepared, or for samples whose form is not known.
    pub fn of(model: &Model, checkpoint: &CheckpointSpec, size: Option<[i64; 2]>) -> Result<Samples> {
        match &model.preparation {
            Preparation::Images(images) => of_images(model, size.unwrap_or([images.size(), images.size()])),
            Preparation::Texts(tokenizer) => {
                let length = TOKENS.min(tokenizer.most() as i64);
                Ok(Samples::of_texts(&texts(vocabulary(model), length, 0)))
            }
            Preparation::Questions(tokenizer) => of_questions(model, checkpoint, tokenizer),
            Preparation::Encoded(tokenizer) => {
                let (ids, mask) = texts(tokenizer.largest + 1, TOKENS.min(tokenizer.tokens), 0);
                let parts = match tokenizer.values {
                    3 => vec![ids.shallow_clone(), mask.shallow_clone(), seconds(&mask)],
                    _ => vec![ids.shallow_clone(), mask.shallow_clone()],
                };
                let stored = Tensor::stack(&parts, 1);
                let names = ["input_ids", "attention_mask", "token_type_ids"];
                let taken = names.into_iter().zip(tokenizer.padding.arguments(&stored)).collect();
                Ok(Samples { stored: stored.unsqueeze(0), taken, images: None })
            }
            Preparation::AsStored => bail!("this network takes samples whose form is not known"),
        }
    }

    fn of_texts((ids, mask): &(Tensor, Tensor)) -> Samples {
        let stored = Tensor::stack(&[ids, mask], 1).unsqueeze(0);
        let taken = vec![("input_ids", ids.shallow_clone()), ("attention_mask", mask.shallow_clone())];
        Samples { stored, taken, images: None }
    }

    /// Returns the samples as the input of the network, on a device.
    pub fn input(&self, device: Device) -> Input {
        Input::Stored(self.stored.to_device(device))
    }
}

/// Returns bytes `[B, 3, height, width]`.
fn bytes([height, width]: [i64; 2]) -> Tensor {
    let mut rng = stream(0, Purpose::Check, &[]);
    let bytes: Vec<u8> = (0..SAMPLES * 3 * height * width).map(|_| rng.random_range(0..=255u8)).collect();
    Tensor::from_slice(&bytes).view([SAMPLES, 3, height, width])
}

fn of_images(model: &Model, size: [i64; 2]) -> Result<Samples> {
    let images = bytes(size);
    let stored = images.unsqueeze(0);
    let prepared = model.prepared(&Input::Stored(stored.to_device(model.device)))?.squeeze_dim(0);
    let pixels = prepared.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
    Ok(Samples { stored, taken: vec![("pixels", pixels)], images: Some(images) })
}

/// Returns the number of tokens that a language network knows.
fn vocabulary(model: &Model) -> i64 {
    model.base.get(&format!("{EMBEDDING}.weight")).map_or(1, |table| table.size()[0])
}

/// Returns random ids and mask, int64 `[B, T]` each, of texts of different lengths, none of which is shorter than `least`.
fn texts(vocabulary: i64, length: i64, least: i64) -> (Tensor, Tensor) {
    let mut rng = stream(0, Purpose::Check, &[]);
    let ids: Vec<i64> = (0..SAMPLES * length).map(|_| rng.random_range(0..vocabulary)).collect();
    let lengths: Vec<i64> = (0..SAMPLES).map(|text| (length - text).max(least).max(1)).collect();
    let mask = Tensor::arange(length, tch::kind::INT64_CPU).lt_tensor(&Tensor::from_slice(&lengths).view([-1, 1]));
    let mask = mask.to_kind(Kind::Int64);
    (Tensor::from_slice(&ids).view([SAMPLES, length]) * &mask, mask)
}

/// Returns the kinds of tokens where the second half of every text belongs to the second of a pair.
fn seconds(mask: &Tensor) -> Tensor {
    let length = mask.size()[1];
    let late = Tensor::arange(length, tch::kind::INT64_CPU).ge(length / 2).to_kind(Kind::Int64);
    mask * late
}

/// Returns prompts that begin with the first token, or none, and the image.
fn of_questions(model: &Model, checkpoint: &CheckpointSpec, tokenizer: &QuestionTokenizer) -> Result<Samples> {
    let (image, patches, side) = (i64::from(tokenizer.image), tokenizer.patches as i64, tokenizer.image_side);
    let length = (patches + TOKENS).min(tokenizer.tokenizer.most() as i64);
    let first = i64::from(length > patches);
    let (ids, mask) = texts(vocabulary(model), length, first + patches);
    // No other token is that of an image.
    let ids = ids.where_self(&ids.ne(image), &(&ids - 1).abs());
    let _ = ids.narrow(1, first, patches).fill_(image);
    let images = bytes([side, side]);
    let text = Tensor::cat(&[&ids, &mask], 1);
    let stored = Tensor::cat(&[&text, &images.flatten(1, 3).to_kind(Kind::Int64)], 1).unsqueeze(0);
    let options = (Device::Cpu, Kind::Float);
    let prepare = Preprocess::new(side, checkpoint.normalization()?, checkpoint.interpolation, options);
    let values = prepare.normalise(&prepare.unit(&images));
    let taken = vec![("input_ids", ids), ("attention_mask", mask), ("pixel_values", values)];
    Ok(Samples { stored, taken, images: None })
}
