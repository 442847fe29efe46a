//! A checkpoint of any kind as it is opened: the request, the network that has been read, and the parts of it that a model takes over. Each
//! kind implements [`Backbone`] in its own file and says in its [entry](crate::model::kind::KindEntry) how it is opened.

use std::fmt::Debug;
use std::path::Path;

use anyhow::Result;
use tch::Kind;

use crate::machine::quantised::Scheme;
use crate::model::chat::Chat;
use crate::model::families::encoders::Features;
use crate::model::folder::Preprocessing;
use crate::model::network::{Network, Parameters, Rows, quantisable};
use crate::model::preparation::{Normalize, Preparation, Wording};
use crate::model::recognition::identify::{Fixed, IdentifiedText};
use crate::model::stored::StoredNames;
use crate::model::vit::OwnHead;

/// The settings of a checkpoint that is to be opened.
pub struct Opening<'a> {
    /// The place of the checkpoint on this machine.
    pub path: &'a Path,
    /// The traits of a vision transformer that its file does not tell, as the config gives them.
    pub fixed: &'a Fixed,
    /// The preparation of images that a folder asks for.
    pub usual: &'a Preprocessing,
    /// The number of pixels per side of the images, if the config says it.
    pub image_size: Option<i64>,
    /// The normalisation of pixels; `None` for a network that takes no images.
    pub normalize: Option<Normalize>,
    /// The length of the rows of numbers that a module takes, if it takes such.
    pub inputs: Option<i64>,
    /// The place of the tokenizer, for kinds of which a config may name it.
    pub tokenizer: Option<&'a Path>,
    /// The most tokens of a text, if the config or the folder of a text encoder says it.
    pub max_tokens: Option<i64>,
    /// Whether longer texts are cut.
    pub truncate: bool,
    /// The text around every prompt of a language network.
    pub chat: Option<&'a Chat>,
    /// The fewer bits in which weights are stored.
    pub quantize: Option<Scheme>,
    /// The features of a text encoder, if the config or its folder says it.
    pub features: Option<Features>,
}

/// A checkpoint that has been opened.
pub struct Opened<'a> {
    pub tower: Box<dyn Backbone>,
    /// Reads the text tower beside an image tower; returns `None` where there is none.
    pub text: Box<dyn Fn() -> Result<Option<IdentifiedText>> + 'a>,
}

impl Opened<'_> {
    /// Takes the network of a checkpoint that has no text tower beside it.
    pub fn alone(tower: impl Backbone + 'static) -> Opened<'static> {
        Opened { tower: Box::new(tower), text: Box::new(|| Ok(None)) }
    }
}

/// The words of a language network, as a head sees them.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    pub tokenizer: &'a dyn Wording,
    pub base: &'a Parameters,
    /// The bound of the logits of tokens, if there is one.
    pub logit_cap: Option<f64>,
}

/// The parts of every checkpoint.
pub struct Held<'a> {
    pub network: &'a dyn Network,
    pub base: &'a Parameters,
    /// The names that the parameters have in the checkpoint, if they have others there.
    pub names: Option<&'a StoredNames>,
    /// The checkpoint's own classifier.
    pub head: Option<&'a OwnHead>,
}

/// The network of a checkpoint, still in f32 on the CPU.
pub trait Backbone {
    fn held(&self) -> Held<'_>;

    fn base_mut(&mut self) -> &mut Parameters;

    fn network(&self) -> &dyn Network {
        self.held().network
    }

    fn base(&self) -> &Parameters {
        self.held().base
    }

    /// Returns the names that the parameters have in the checkpoint; none for a module, which keeps its own.
    fn names(&self) -> StoredNames {
        self.held().names.cloned().unwrap_or_default()
    }

    /// Returns the checkpoint's own classifier.
    fn own_head(&self) -> Option<&OwnHead> {
        self.held().head
    }

    /// Stores the weights of the linear layers of blocks in fewer bits, those that are not yet.
    ///
    /// # Errors
    /// Fails if one of them is NaN or infinite.
    fn quantise(&mut self, scheme: Option<Scheme>) -> Result<()> {
        let Some(scheme) = scheme else { return Ok(()) };
        let layers = quantisable(self.network());
        self.base_mut().quantise(&layers, scheme)
    }

    /// Returns the layer whose weights are new, since the checkpoint has none for it.
    fn new_layer(&self) -> Option<&'static str> {
        None
    }

    /// Returns the path of a layer of the class for classification whose weights in an adapter or a fine-tuned copy mean that it reads a text by
    /// the layer in front of the classifier (`checkpoint.features = "pooled"`); `None` where the network does so already, or has no such class.
    fn classifies_by(&self) -> Option<String> {
        None
    }

    /// Returns the family of the parameters' names in the checkpoint, such as `timm`.
    fn naming(&self) -> &'static str {
        "transformers"
    }

    /// Returns the tokenizer and the weights of the language network, also of one that sees images; `None` if there is none.
    fn words(&self) -> Option<Words<'_>> {
        None
    }

    /// Chooses the tokens whose hidden states are the features, where a network has those of all tokens.
    fn read(&mut self, _rows: Rows) {}

    /// Checks that the network computes in the type `kind`.
    ///
    /// # Errors
    /// Fails for a module and any type but f32.
    fn check_kind(&self, _kind: Kind) -> Result<()> {
        Ok(())
    }

    /// Returns what the network computes beyond the names and shapes of its parameters.
    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// Reads the parameters, and the classifier if there is one, of another folder or file of such a network: they are the
    /// same ones where it is a fine-tuned copy of the checkpoint.
    ///
    /// # Errors
    /// Fails if it cannot be read, and for a module.
    fn read_like(&self, path: &Path) -> Result<Alike>;

    /// Logs a description of the checkpoint; returns the difference of its self-check, if there was one.
    fn announce(&self) -> Option<f64>;

    /// Returns the network with the preparation of its samples. `images` prepares images of so many pixels per side.
    ///
    /// # Errors
    /// Fails if images cannot be prepared.
    fn into_parts(self: Box<Self>, images: &Images) -> Result<Parts>;
}

/// Returns the preparation of images of so many pixels per side.
pub type Images<'a> = dyn Fn(i64) -> Result<Box<dyn Preparation>> + 'a;

/// A part of what a network computes that the names and shapes of its parameters do not tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The words for the setting in a message, such as `epsilon`.
    pub name: &'static str,
    pub value: String,
}

impl Setting {
    pub fn new(name: &'static str, value: &dyn Debug) -> Setting {
        Setting { name, value: format!("{value:?}") }
    }
}

/// The weights of another folder or file of a network.
pub struct Alike {
    pub parameters: Parameters,
    /// The settings that its config states for the network, in the order of [`Backbone::settings`].
    pub settings: Vec<Setting>,
    /// Its classifier, if it has one.
    pub head: Option<OwnHead>,
}

/// The parts of a checkpoint that a model takes over.
pub struct Parts {
    pub network: Box<dyn Network>,
    pub base: Parameters,
    pub preparation: Box<dyn Preparation>,
}
