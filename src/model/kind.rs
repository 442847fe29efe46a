//! The entry of a kind of checkpoint, which is written in the file of that kind; networks of texts that a config alone describes, whose
//! weights have sizes and no values; and the stand-ins that are made of them.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::data::Medium;
use crate::model::backbone::{Opened, Opening};
use crate::model::chat::Chat;
use crate::model::families::encoders::Features;
use crate::model::network::{Network, Rows};
use crate::model::preparation::{Normalize, Preparation};
use crate::model::values::Values;

/// The facts about a kind of checkpoint.
pub struct KindEntry {
    /// The word of `checkpoint.kind`.
    pub word: &'static str,
    /// Opens one.
    pub open: for<'a> fn(&Opening<'a>) -> Result<Opened<'a>>,
    /// Returns whether such a network lies at a path, a folder or a file of weights.
    pub lies_at: fn(&Path) -> bool,
    /// Returns whether a `config.json` of this model type is that of such a network.
    pub reads: fn(&str) -> bool,
    /// Whether packages load the folder of the checkpoint's file rather than the file.
    pub is_folder: bool,
    /// Returns the network that a config describes; a reason why its operations are not estimated where no config does.
    pub outline: Result<Described, &'static str>,
    pub stand_in: StandIn,
    /// Returns the kind of samples that the network takes, where the config names a tokenizer or does not.
    pub medium: fn(bool) -> Medium,
    pub tokenizer: TokenizerAt,
    /// Returns the keys of `[checkpoint]` that mean nothing to a network that takes this.
    pub foreign: fn(Medium) -> Foreign,
    /// The overrides of a config by which a published network of this kind is benched: what it reads, and its head.
    pub bench: &'static [&'static str],
}

/// The place of a network's tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerAt {
    /// In the network's folder, if it has one at all; the config names no other.
    Folder,
    /// Where the config says, or else in the network's folder.
    FolderOrNamed,
    /// Where the config says, or else beside the archive if there is one and no size of images is given.
    BesideOrNamed,
}

/// Keys that mean nothing, and the reason.
pub struct Foreign {
    pub keys: &'static [&'static str],
    pub why: &'static str,
}

/// The keys of texts, which are foreign to a network of images.
pub const OF_TEXTS: Foreign = Foreign {
    keys: &["max_tokens", "truncate"],
    why: "is for networks of texts: leave it out, or set kind = \"language\" or \"encoder\", or tokenizer with kind = \"module\"",
};

/// The keys of images and of their towers, which are foreign to a network of texts whose config says everything.
pub const OF_IMAGES: &[&str] =
    &["image_size", "normalize", "interpolation", "architecture", "heads", "activation", "eps"];

/// Makes the network of a config for texts of at most so many tokens, and images with a normalisation.
pub type Described = fn(&Values, Option<i64>, Normalize) -> Result<Box<dyn Outline>>;

/// The way in which random weights can stand in for a checkpoint that nobody has downloaded.
pub enum StandIn {
    /// None, for this reason.
    Impossible(&'static str),
    /// A TorchScript archive of a published shape.
    Archive,
    /// A folder as transformers writes it.
    Folder {
        marks: Marks,
        /// Writes the sizes of the stand-in, and what it says about tokens, into a publisher's config.
        write: fn(&mut Value, &Making) -> Result<()>,
    },
}

/// A network of texts, of which the sizes are known.
pub trait Outline: Network {
    /// Returns the names and shapes of all weights, in the order of the forward pass.
    fn sizes(&self) -> Vec<(String, Vec<i64>)>;

    /// Returns the names and shapes of the tensors in a publisher's folder.
    fn published_sizes(&self) -> Vec<(String, Vec<i64>)>;

    /// Returns a weight that is another one, by the names of both.
    fn tie(&self) -> Option<[String; 2]> {
        None
    }

    /// Returns the most tokens of a text.
    fn most_tokens(&self) -> i64;

    /// Returns the number of pixels per side of an image; `None` for a network that sees none.
    fn image_side(&self) -> Option<i64> {
        None
    }

    /// Returns the tokens of an image; `None` for a network that sees none.
    fn patches(&self) -> Option<i64> {
        None
    }

    /// Takes other features of a text, where the network has a choice of them.
    fn read_by(&mut self, _: Features) {}

    /// Opens the tokenizer of the network in a folder, which puts prompts into a chat if there is one.
    ///
    /// # Errors
    /// Fails if the folder has none, or one that does not belong to the network.
    fn tokenizer(&self, folder: &Path, chat: Option<&Chat>) -> Result<Box<dyn Preparation>>;

    /// Returns the network whose features are those of some tokens, where it has those of all.
    fn reading(self: Box<Self>, rows: Rows) -> Box<dyn Network>;
}

/// The sizes in which a stand-in of a network of texts differs from the published network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextSizes {
    /// The number of tokens that the network knows.
    pub vocabulary: i64,
    /// The width of hidden states, d.
    pub width: i64,
    /// The width of the hidden values of an MLP.
    pub mlp: i64,
    pub blocks: usize,
    /// The number of heads of queries.
    pub heads: i64,
}

/// The keys of sizes in a config, in which families differ.
pub struct SizeKeys {
    pub width: &'static str,
    pub mlp: &'static str,
    pub blocks: &'static str,
    pub heads: &'static str,
}

/// The blocks of a tiny network.
const TINY_BLOCKS: usize = 4;

impl TextSizes {
    /// Returns those of a stand-in. A tiny one has width 64.
    ///
    /// # Errors
    /// Fails if the network knows fewer tokens than the stand-in's tokenizer.
    pub fn made(self, making: &Making) -> Result<TextSizes> {
        let tokens = making.tokens;
        let made = match making.size {
            Size::Published => self,
            size => TextSizes {
                vocabulary: (tokens + 63) / 64 * 64,
                width: 64,
                mlp: 128,
                blocks: if size == Size::TinyBlocks { self.blocks } else { TINY_BLOCKS },
                heads: 8,
            },
        };
        ensure!(
            tokens <= made.vocabulary,
            "knows {} tokens, and the stand-in's words, bytes and label words are {tokens}: use fewer label words",
            made.vocabulary
        );
        Ok(made)
    }

    /// Writes them into a config, under the keys of its family.
    pub fn write(&self, config: &mut Value, keys: &SizeKeys) {
        config["vocab_size"] = json!(self.vocabulary);
        config[keys.width] = json!(self.width);
        config[keys.mlp] = json!(self.mlp);
        config[keys.blocks] = json!(self.blocks);
        config[keys.heads] = json!(self.heads);
    }
}

/// The size of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Published,
    /// Few narrow blocks.
    Tiny,
    /// Narrow blocks, but as many as published, since configs may select among them.
    TinyBlocks,
}

/// The special tokens that a tokenizer puts around texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// One in front of a text.
    Start,
    /// One in front of a text, and one for an image within it.
    StartAndImage,
    /// One in front of a text and one behind it, and two between those of a pair.
    Around,
}

/// The special tokens by their names.
pub const START: &str = "<s>";
pub const END: &str = "</s>";
pub const PADDING: &str = "<pad>";
pub const UNKNOWN: &str = "<unk>";

impl Marks {
    /// Returns the special tokens, apart from that of an image, in the order of their numbers.
    pub fn special(self) -> &'static [&'static str] {
        match self {
            Marks::Start | Marks::StartAndImage => &[UNKNOWN, START, END],
            Marks::Around => &[START, PADDING, END, UNKNOWN],
        }
    }

    /// Returns the number of a special token.
    ///
    /// # Panics
    /// Panics if there is no such token.
    pub fn id(self, name: &str) -> i64 {
        self.special().iter().position(|known| *known == name).expect("a mark of this kind") as i64
    }
}

/// A stand-in of a network of texts that is made.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub size: Size,
    pub marks: Marks,
    /// The number of tokens of its tokenizer.
    pub tokens: i64,
    /// The number of the token of an image, if it sees one.
    pub image: Option<i64>,
}
