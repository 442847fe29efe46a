//! The network of a checkpoint as it has been read, of any kind. A new kind of network implements [`Backbone`] and is opened in
//! [`open`].

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tch::Kind;

use super::head::Words;
use super::language::Rows;
use super::network::{Network, Parameters, quantisable};
use super::preparation::{AsStored, Preparation};
use super::recognition::identify::{Evidence, Fixed, Identified};
use super::spec::{CheckpointSpec, Kind as CheckpointKind};
use super::stored::StoredNames;
use super::vit::OwnHead;
use super::{encoder, folder, language, module, sighted};
use crate::machine::quantised::Scheme;

/// The network of a checkpoint, still in f32 on the CPU.
pub trait Backbone {
    fn network(&self) -> &dyn Network;

    fn base(&self) -> &Parameters;

    fn base_mut(&mut self) -> &mut Parameters;

    /// Stores the weights of the linear layers of blocks in fewer bits, those that are not yet.
    ///
    /// # Errors
    /// Fails if one of them is NaN or infinite.
    fn quantise(&mut self, scheme: Option<Scheme>) -> Result<()> {
        let Some(scheme) = scheme else { return Ok(()) };
        let layers = quantisable(self.network());
        self.base_mut().quantise(&layers, scheme)
    }

    /// Returns the names that the parameters have in the checkpoint; none for a module, which keeps its own.
    fn names(&self) -> StoredNames;

    /// Returns the family of the parameters' names in the checkpoint, such as `timm`.
    fn naming(&self) -> &'static str {
        "transformers"
    }

    /// Returns the checkpoint's own classifier.
    fn own_head(&self) -> Option<&OwnHead> {
        None
    }

    /// Returns the tokenizer and the weights of the language network, also of one that sees images; `None` if there is none.
    fn words(&self) -> Option<Words<'_>> {
        None
    }

    /// Chooses the tokens whose hidden states are the features, where a network has those of all tokens.
    fn read(&mut self, rows: Rows) {
        let _ = rows;
    }

    /// Checks that the network computes in the type `kind`.
    ///
    /// # Errors
    /// Fails for a module and any type but f32.
    fn check_kind(&self, kind: Kind) -> Result<()> {
        let _ = kind;
        Ok(())
    }

    /// Reads the parameters, and the classifier if there is one, of another folder or file of such a network: they are the
    /// same ones where it is a fine-tuned copy of the checkpoint.
    ///
    /// # Errors
    /// Fails if it cannot be read, and for a module.
    fn read_like(&self, path: &Path) -> Result<(Parameters, Option<OwnHead>)>;

    /// Logs what the checkpoint is; returns the difference of its self-check, if there was one.
    fn announce(&self) -> Option<f64>;

    /// Returns the network with the preparation of its samples. `images` prepares images of so many pixels per side.
    ///
    /// # Errors
    /// Fails if images cannot be prepared.
    fn into_parts(self: Box<Self>, images: &Images) -> Result<Parts>;
}

/// Returns the preparation of images of so many pixels per side.
pub type Images<'a> = dyn Fn(i64) -> Result<Box<dyn Preparation>> + 'a;

/// The parts of a checkpoint that a model takes over.
pub struct Parts {
    pub network: Box<dyn Network>,
    pub base: Parameters,
    pub preparation: Box<dyn Preparation>,
}

/// Opens a checkpoint of a kind that has no text tower beside it. The kinds are matched here and not asked through their entries: an
/// entry that named [`CheckpointSpec`] and [`Backbone`] would close a circle of imports, since the spec asks the entries what its keys
/// mean, and a backbone names the tokenizer of language networks.
///
/// # Errors
/// Fails if it cannot be read or does not fit the config.
pub fn open(spec: &CheckpointSpec) -> Result<Box<dyn Backbone>> {
    let path = spec.local()?;
    let limit = module::Limit { tokens: spec.max_tokens, truncate: spec.truncate, ..module::Limit::default() };
    Ok(match spec.kind {
        CheckpointKind::Module => {
            let wanted = match (&spec.tokenizer, spec.inputs, spec.image_size) {
                (Some(tokenizer), ..) => module::Wanted::Texts { tokenizer: tokenizer.clone(), limit },
                (None, Some(inputs), _) => module::Wanted::Rows(inputs),
                (None, None, size) => {
                    module::Wanted::Images(size.context("checkpoint.image_size: must be set for a module")?)
                }
            };
            Box::new(module::open(path, &wanted)?)
        }
        CheckpointKind::Encoder => {
            let tokenizer = spec.tokenizer.clone().unwrap_or_else(|| folder::home(path));
            Box::new(encoder::open(path, &tokenizer, limit, spec.quantize)?)
        }
        CheckpointKind::Language => {
            let opened = language::open(path, spec.max_tokens, spec.quantize)?;
            Box::new(language::Opened { tokenizer: opened.tokenizer.in_chat(spec.chat.clone()), ..opened })
        }
        CheckpointKind::VisionLanguage => {
            Box::new(sighted::open(path, spec.max_tokens, (spec.normalization()?, spec.quantize))?)
        }
        CheckpointKind::Native => bail!("{}: an image tower is opened with its text tower", path.display()),
    })
}

/// A vision transformer that bella runs itself.
impl Backbone for Identified {
    fn network(&self) -> &dyn Network {
        &self.vit
    }

    fn base(&self) -> &Parameters {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn names(&self) -> StoredNames {
        self.names.clone()
    }

    fn naming(&self) -> &'static str {
        self.naming.key
    }

    fn own_head(&self) -> Option<&OwnHead> {
        self.head.as_ref()
    }

    fn read_like(&self, path: &Path) -> Result<(Parameters, Option<OwnHead>)> {
        folder::identify(path, &Fixed::default()).map(|found| (found.base, found.head))
    }

    fn announce(&self) -> Option<f64> {
        let (geometry, traits) = (&self.vit.geometry, self.vit.traits);
        tracing::info!(
            "checkpoint: {} ViT, width {}, {} blocks, {} heads, patch {}, {} px, {}, eps {:e}",
            self.naming.key,
            geometry.width,
            geometry.blocks,
            traits.heads,
            geometry.patch,
            geometry.image_size(),
            traits.activation,
            traits.eps
        );
        match &self.evidence {
            Evidence::SelfCheck { difference, .. } => {
                tracing::debug!("self-check: relative difference {:.1e}", difference.relative);
                Some(difference.relative)
            }
            Evidence::Config { reference: Some(difference) } => {
                tracing::debug!("reference: relative difference {:.1e}", difference.relative);
                Some(difference.relative)
            }
            Evidence::Config { reference: None } => {
                tracing::info!(
                    "checkpoint: every tensor has its place; no reference.safetensors beside it to compare features with"
                );
                None
            }
            Evidence::Code { reason } => {
                tracing::warn!(
                    "the archive's own forward does not run here, so the native one is not checked ({reason})"
                );
                None
            }
        }
    }

    fn into_parts(self: Box<Self>, images: &Images) -> Result<Parts> {
        let preparation = images(self.vit.geometry.image_size())?;
        Ok(Parts { network: Box::new(self.vit), base: self.base, preparation })
    }
}

/// A TorchScript module that runs by its own forward.
impl Backbone for module::Opened {
    fn network(&self) -> &dyn Network {
        &self.module
    }

    fn base(&self) -> &Parameters {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn names(&self) -> StoredNames {
        StoredNames::default()
    }

    fn naming(&self) -> &'static str {
        "module"
    }

    fn own_head(&self) -> Option<&OwnHead> {
        self.head.as_ref()
    }

    fn check_kind(&self, kind: Kind) -> Result<()> {
        ensure!(
            kind == Kind::Float,
            "train.precision: a module (checkpoint.kind = \"module\") computes in f32 only: set precision = \"f32\""
        );
        Ok(())
    }

    fn read_like(&self, path: &Path) -> Result<(Parameters, Option<OwnHead>)> {
        bail!("{}: a module has its own code and is read as a checkpoint only", path.display())
    }

    fn announce(&self) -> Option<f64> {
        let (module, parameters) = (&self.module, self.base.count());
        let head = match &self.head {
            Some(own) => format!("its last layer is a classifier of {} classes", own.weight.size()[0]),
            None => "its last operation is no linear layer, so its output counts as features".to_string(),
        };
        let taken = module.intake().about();
        tracing::info!(
            "checkpoint: a module of {parameters} parameters, {taken}, features {} wide; {head}",
            module.feature_width()
        );
        if self.running_statistics {
            tracing::info!("checkpoint: normalisation with running statistics stays in evaluation mode");
        }
        match module.kept_bytes() {
            0 => tracing::warn!(
                "checkpoint: this system does not tell how much memory the module takes, so none is planned"
            ),
            bytes => tracing::debug!(
                "checkpoint: a graph keeps {:.1} MiB per {}",
                bytes as f64 / f64::from(1 << 20),
                module.intake().sample()
            ),
        }
        None
    }

    fn into_parts(self: Box<Self>, images: &Images) -> Result<Parts> {
        let preparation: Box<dyn Preparation> = match (self.module.intake().image_size(), self.tokenizer) {
            (Some(size), _) => images(size)?,
            (None, Some(tokenizer)) => tokenizer,
            (None, None) => Box::new(AsStored),
        };
        Ok(Parts { network: Box::new(self.module), base: self.base, preparation })
    }
}

/// A text encoder that bella runs itself.
impl Backbone for encoder::Opened {
    fn network(&self) -> &dyn Network {
        &self.encoder
    }

    fn base(&self) -> &Parameters {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn names(&self) -> StoredNames {
        self.names.clone()
    }

    fn own_head(&self) -> Option<&OwnHead> {
        self.head.as_ref()
    }

    fn read_like(&self, path: &Path) -> Result<(Parameters, Option<OwnHead>)> {
        encoder::parameters(path)
    }

    fn announce(&self) -> Option<f64> {
        let (geometry, tokens) = (&self.encoder.geometry, self.encoder.tokens);
        tracing::info!(
            "checkpoint: {} ({}), {} parameters, width {}, {} blocks, {} heads, texts of at most {tokens} tokens",
            geometry.family.model_type,
            geometry.family.about,
            self.base.count(),
            geometry.width,
            geometry.blocks,
            geometry.heads
        );
        None
    }

    fn into_parts(self: Box<Self>, _: &Images) -> Result<Parts> {
        Ok(Parts { network: Box::new(self.encoder), base: self.base, preparation: self.tokenizer })
    }
}

/// A language network that bella runs itself.
impl Backbone for language::Opened {
    fn network(&self) -> &dyn Network {
        &self.language
    }

    fn base(&self) -> &Parameters {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn names(&self) -> StoredNames {
        self.names.clone()
    }

    fn words(&self) -> Option<Words<'_>> {
        let logit_cap = self.language.geometry.traits.logit_cap;
        Some(Words { tokenizer: &self.tokenizer, base: &self.base, logit_cap })
    }

    fn read_like(&self, path: &Path) -> Result<(Parameters, Option<OwnHead>)> {
        language::parameters(path).map(|found| (found, None))
    }

    fn announce(&self) -> Option<f64> {
        let (geometry, tokens) = (&self.language.geometry, self.language.tokens);
        tracing::info!(
            "checkpoint: {} ({}), {} parameters, width {}, {} blocks, {} heads ({} of keys), prompts of at most {tokens} tokens",
            geometry.family.model_type,
            geometry.family.about,
            self.base.count(),
            geometry.width,
            geometry.blocks,
            geometry.heads,
            geometry.key_heads
        );
        None
    }

    fn into_parts(self: Box<Self>, _: &Images) -> Result<Parts> {
        Ok(Parts { network: Box::new(self.language), base: self.base, preparation: Box::new(self.tokenizer) })
    }
}

/// A language network that sees an image, which bella runs itself.
impl Backbone for sighted::Opened {
    fn network(&self) -> &dyn Network {
        &self.network
    }

    fn base(&self) -> &Parameters {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn names(&self) -> StoredNames {
        self.names.clone()
    }

    fn words(&self) -> Option<Words<'_>> {
        let logit_cap = self.network.language.geometry.traits.logit_cap;
        Some(Words { tokenizer: &self.tokenizer.tokenizer, base: &self.base, logit_cap })
    }

    fn read(&mut self, rows: Rows) {
        self.network.reads = rows;
    }

    fn read_like(&self, path: &Path) -> Result<(Parameters, Option<OwnHead>)> {
        sighted::parameters(path).map(|found| (found, None))
    }

    fn announce(&self) -> Option<f64> {
        let (language, sight) = (&self.network.language, &self.network.sight);
        tracing::info!(
            "checkpoint: {} on {} ({}), {} parameters, width {}, {} blocks; an image of {} px a side is {} of at most {} tokens",
            sight.eyes.family.model_type,
            language.geometry.family.model_type,
            language.geometry.family.about,
            self.base.count(),
            language.geometry.width,
            language.geometry.blocks,
            sight.eyes.image_size,
            sight.patches(),
            language.tokens
        );
        None
    }

    fn into_parts(self: Box<Self>, _: &Images) -> Result<Parts> {
        Ok(Parts { network: Box::new(self.network), base: self.base, preparation: Box::new(self.tokenizer) })
    }
}
