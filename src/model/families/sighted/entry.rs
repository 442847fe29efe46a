//! The entry of a family of language networks that see an image, and the reading of a config by it.

use anyhow::Result;
use serde_json::Value;

use crate::model::families::class::{Class, Inner, Published, TOWER};
use crate::model::values::Values;

/// The image tower of every family, as exports name it.
pub(super) static EYES: Inner =
    Inner { part: "vision.", prefix: ["model.vision_tower.vision_model.", "model.vision_tower."], styles: TOWER };

/// A family of language networks that see an image: an image tower, a projector, and a decoder that reads the patches at the
/// place of the image in its prompt.
pub struct SightedFamily {
    pub model_type: &'static str,
    /// Networks of this type, for people.
    pub about: &'static str,
    /// The model types of the decoders that it may have, the usual one first, each with the class that an exported network is loaded in.
    pub languages: &'static [(&'static str, &'static Class)],
    /// The model type of its image tower.
    pub tower: &'static str,
    /// The layers of the projector; an activation stands between two of them.
    pub projector: &'static [&'static str],
    /// The token of a patch where the config names none.
    pub image_token: i64,
    /// Whether the embeddings are also the output matrix where the whole config says nothing.
    pub tied: bool,
    /// Whether the decoder's table may say so as well.
    pub table_ties: bool,
    /// Whether the tokens of a prompt read each other in both directions, and only those of an answer look back alone.
    pub reads_prompt_whole: bool,
    pub asking: Asking,
    /// The lines of a data set's table that ask as in its training, where they are not the defaults.
    pub questions: &'static str,
    /// The keys of the whole config that are read besides those of every family.
    pub keys: &'static [&'static str],
    /// The keys of the whole config that change nothing.
    pub harmless: &'static [&'static str],
    /// The keys of the decoder's table that change nothing within such a network.
    pub harmless_in_text: &'static [&'static str],
    /// The keys of the tower's table that change nothing within such a network.
    pub harmless_in_vision: &'static [&'static str],
    /// Returns what the config says of the way from the tower to the decoder.
    pub sight: fn(&Reading) -> Result<Sight>,
    /// The image processor of its folders, by the start of its name.
    pub processor: &'static str,
    /// Returns what a stand-in's folder says of images of so many pixels per side.
    pub preparation: fn(i64) -> Value,
    /// The published networks, for plans and rehearsals.
    pub published: &'static [Published],
}

/// The form of a prompt and its answer as tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    pub start: Start,
    /// The text behind every prompt.
    pub ending: &'static str,
    /// The text between a prompt and its answer, which are cut into tokens together; `None` where each is cut alone.
    pub between: Option<&'static str>,
}

/// The place of the start token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// In front of everything, where the tokenizer puts one there.
    Front,
    /// Between the image and the text behind it.
    BehindImage,
}

/// The config of a network that sees images, with what has been read of it.
pub struct Reading<'a> {
    pub values: &'a Values,
    /// The number of blocks of its tower.
    pub blocks: i64,
    /// The width of the decoder.
    pub width: i64,
}

/// The way from the tower to the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The number of the tower's blocks that are run.
    pub blocks: usize,
    /// Whether the tokens in front of the patches are among those that the decoder reads.
    pub keeps_class: bool,
    /// Whether the tower's last norm follows its blocks.
    pub norm: bool,
    /// Whether the projector has biases.
    pub bias: bool,
}
