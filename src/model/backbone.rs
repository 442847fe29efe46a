//! The network of a checkpoint as it has been read, of any kind.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use tch::Kind;

use super::language::{Rows, Tokenizer};
use super::network::{Network, Parameters};
use super::preparation::{AsStored, Preparation};
use super::recognition::identify::{Fixed, Identified};
use super::stored::StoredNames;
use super::vit::OwnHead;
use super::{encoder, folder, language, llava, module};

/// The network of a checkpoint, still in f32 on the CPU.
pub enum Backbone {
    /// A vision transformer that bella runs itself.
    Vit(Identified),
    /// A TorchScript module that runs by its own forward.
    Module(module::Opened),
    /// A text encoder that bella runs itself.
    Encoder(Box<encoder::Opened>),
    /// A language network that bella runs itself.
    Language(Box<language::Opened>),
    /// A language network that sees an image, which bella runs itself.
    Llava(Box<llava::Opened>),
}

/// The parts of a checkpoint that a model takes over.
pub struct Parts {
    pub network: Box<dyn Network>,
    pub base: Parameters,
    pub preparation: Box<dyn Preparation>,
}

impl Backbone {
    /// Returns the network with the preparation of its samples. `images` prepares images of so many pixels per side.
    ///
    /// # Errors
    /// Fails if images cannot be prepared.
    pub fn into_parts(self, images: impl Fn(i64) -> Result<Box<dyn Preparation>>) -> Result<Parts> {
        let (network, base, preparation): (Box<dyn Network>, Parameters, Box<dyn Preparation>) = match self {
            Backbone::Vit(found) => {
                let preparation = images(found.vit.geometry.image_size())?;
                (Box::new(found.vit), found.base, preparation)
            }
            Backbone::Module(found) => {
                let preparation = match (found.module.intake(), found.tokenizer) {
                    (module::Intake::Images(size), _) => images(*size)?,
                    (module::Intake::Texts(_), Some(tokenizer)) => tokenizer,
                    (module::Intake::Texts(_), None) => Box::new(AsStored),
                };
                (Box::new(found.module), found.base, preparation)
            }
            Backbone::Language(found) => {
                let language::Opened { language, base, tokenizer, .. } = *found;
                (Box::new(language), base, Box::new(tokenizer))
            }
            Backbone::Encoder(found) => {
                let encoder::Opened { encoder, base, tokenizer, .. } = *found;
                (Box::new(encoder), base, tokenizer)
            }
            Backbone::Llava(found) => {
                let llava::Opened { llava, base, tokenizer, .. } = *found;
                (Box::new(llava), base, Box::new(tokenizer))
            }
        };
        Ok(Parts { network, base, preparation })
    }

    /// Returns the tokenizer and the weights of the language network, also of one that sees images; `None` if there is none.
    pub fn words(&self) -> Option<(&Tokenizer, &Parameters)> {
        match self {
            Backbone::Vit(_) | Backbone::Module(_) | Backbone::Encoder(_) => None,
            Backbone::Language(found) => Some((&found.tokenizer, &found.base)),
            Backbone::Llava(found) => Some((&found.tokenizer.tokenizer, &found.base)),
        }
    }

    /// Chooses the tokens whose hidden states are the features, where a network has those of all tokens.
    pub fn read(&mut self, rows: Rows) {
        if let Backbone::Llava(found) = self {
            found.llava.reads = rows;
        }
    }

    pub fn network(&self) -> &dyn Network {
        match self {
            Backbone::Vit(found) => &found.vit,
            Backbone::Module(found) => &found.module,
            Backbone::Encoder(found) => &found.encoder,
            Backbone::Language(found) => &found.language,
            Backbone::Llava(found) => &found.llava,
        }
    }

    pub fn base(&self) -> &Parameters {
        match self {
            Backbone::Vit(found) => &found.base,
            Backbone::Module(found) => &found.base,
            Backbone::Encoder(found) => &found.base,
            Backbone::Language(found) => &found.base,
            Backbone::Llava(found) => &found.base,
        }
    }

    /// Returns the checkpoint's own classifier.
    pub fn own_head(&self) -> Option<&OwnHead> {
        match self {
            Backbone::Vit(found) => found.head.as_ref(),
            Backbone::Module(found) => found.head.as_ref(),
            Backbone::Encoder(found) => found.head.as_ref(),
            Backbone::Language(_) | Backbone::Llava(_) => None,
        }
    }

    /// Checks that the network computes in the type `kind`.
    ///
    /// # Errors
    /// Fails for a module and any type but f32.
    pub fn check_kind(&self, kind: Kind) -> Result<()> {
        ensure!(
            !matches!(self, Backbone::Module(_)) || kind == Kind::Float,
            "train.precision: a module (checkpoint.kind = \"module\") computes in f32 only: set precision = \"f32\""
        );
        Ok(())
    }

    /// Returns the family of the parameters' names in the checkpoint, such as `timm`.
    pub fn naming(&self) -> &'static str {
        match self {
            Backbone::Vit(found) => found.naming.key,
            Backbone::Module(_) => "module",
            Backbone::Encoder(_) | Backbone::Language(_) | Backbone::Llava(_) => "transformers",
        }
    }

    /// Returns the names that the parameters have in the checkpoint; none for a module, which keeps its own.
    pub fn names(&self) -> StoredNames {
        match self {
            Backbone::Vit(found) => found.names.clone(),
            Backbone::Module(_) => StoredNames::default(),
            Backbone::Encoder(found) => found.names.clone(),
            Backbone::Language(found) => found.names.clone(),
            Backbone::Llava(found) => found.names.clone(),
        }
    }

    /// Reads the parameters, and the classifier if there is one, of another folder or file of such a network: they are the
    /// same ones where it is a fine-tuned copy of the checkpoint.
    ///
    /// # Errors
    /// Fails if it cannot be read, and for a module.
    pub fn read_like(&self, path: &Path) -> Result<(Parameters, Option<OwnHead>)> {
        match self {
            Backbone::Vit(_) => folder::identify(path, &Fixed::default()).map(|found| (found.base, found.head)),
            Backbone::Module(_) => {
                bail!("{}: a module has its own code and is read as a checkpoint only", path.display())
            }
            Backbone::Encoder(_) => encoder::parameters(path),
            Backbone::Language(_) => language::parameters(path).map(|found| (found, None)),
            Backbone::Llava(_) => llava::parameters(path).map(|found| (found, None)),
        }
    }
}
