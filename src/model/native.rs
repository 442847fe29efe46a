//! Vision transformers that bella runs itself, with the text towers beside them: checkpoints in archives, in folders or in files of
//! weights.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::archive::Archive;
use super::backbone::{Alike, Backbone, Held, Images, Opened, Opening, Parts, Setting};
use super::folder;
use super::kind::{KindEntry, OF_TEXTS, StandIn, TokenizerAt};
use super::network::Parameters;
use super::recognition::identify::{Evidence, Fixed, Identified, IdentifiedText, Source, identify, identify_text};
use super::vit::Traits;
use super::vit::forward::Vit;
use super::vit::parts::Readout;
use crate::data::Medium;
use crate::model::folder::Preprocessing;

/// The possible numbers of pixels per side of the images that a network takes.
pub const IMAGE_SIDES: RangeInclusive<i64> = 1..=4096;

pub static KIND: KindEntry = KindEntry {
    word: "native",
    open,
    lies_at: |_| false,
    reads: |_| false,
    is_folder: false,
    outline: Err(
        "the shape of a vision transformer is that of its weights, or a published one, and no config describes it",
    ),
    stand_in: StandIn::Archive,
    bench: &[],
    medium: |_| Medium::Images,
    tokenizer: TokenizerAt::Folder,
    foreign: |_| OF_TEXTS,
};

/// A checkpoint whose image tower has been read and checked.
pub struct OpenedCheckpoint<'a> {
    path: &'a Path,
    fixed: Fixed,
    /// The archive, which is needed for the text tower; `None` for a folder.
    archive: Option<Archive>,
    pub identified: Identified,
}

impl OpenedCheckpoint<'_> {
    /// Opens an archive, which is self-checked, or a folder or a file of weights.
    ///
    /// # Errors
    /// Fails if it cannot be read, if its network is not known, or if the check fails.
    pub fn open(path: &Path, fixed: Fixed) -> Result<OpenedCheckpoint<'_>> {
        if folder::has_weights(path)? {
            let identified = folder::identify(path, &fixed)?;
            return Ok(OpenedCheckpoint { path, fixed, archive: None, identified });
        }
        let archive = Archive::open(path)?;
        let identified = identify(&archive, fixed.clone())?;
        Ok(OpenedCheckpoint { path, fixed, archive: Some(archive), identified })
    }

    /// Changes the image tower to the side of images that a config asks for, or else to that at which its folder prepares them, which may be
    /// another one than that of its position embeddings.
    ///
    /// # Errors
    /// Fails if no network takes such images, or if this one does not.
    pub fn fit(&mut self, asked: Option<i64>, usual: &Preprocessing) -> Result<()> {
        let shown = self.path.display();
        let Identified { vit, base, fixed_size, .. } = &mut self.identified;
        let Some(size) = asked.or(usual.image_size) else { return Ok(()) };
        ensure!(
            IMAGE_SIDES.contains(&size),
            "{shown}: {} asks for images of {size} pixels per side: must be from 1 to {}; set checkpoint.image_size",
            usual.file.unwrap_or("its config"),
            IMAGE_SIDES.end()
        );
        if let Some(why) = fixed_size.as_ref().filter(|_| size != vit.geometry.image_size()) {
            let own = vit.geometry.image_size();
            bail!("{shown}: images of {size} pixels: {why}: set checkpoint.image_size to {own}");
        }
        match asked {
            Some(size) => vit.resize(base, size),
            None => vit.fit(base, size).with_context(|| shown.to_string()),
        }
    }

    /// Reads CLIP's text tower; `None` where there is none that bella knows.
    ///
    /// # Errors
    /// Fails if it cannot be read or if the check fails.
    pub fn text(&self) -> Result<Option<IdentifiedText>> {
        text_of(self.path, &self.fixed, self.archive.as_ref(), self.identified.vit.traits)
    }
}

/// Reads the text tower of an archive, or of weights at a path with what the user says of them. `image` holds the traits
/// of the image tower.
fn text_of(path: &Path, fixed: &Fixed, archive: Option<&Archive>, image: Traits) -> Result<Option<IdentifiedText>> {
    match archive {
        Some(archive) => identify_text(archive, image),
        None => folder::identify_text(path, fixed),
    }
}

/// Opens the configured checkpoint at the configured image size.
fn open<'a>(opening: &Opening<'a>) -> Result<Opened<'a>> {
    let Opening { path, fixed, usual, .. } = *opening;
    let mut opened = OpenedCheckpoint::open(path, fixed.clone())?;
    opened.fit(opening.image_size, usual)?;
    let OpenedCheckpoint { archive, identified, .. } = opened;
    let traits = identified.vit.traits;
    let text = Box::new(move || text_of(path, fixed, archive.as_ref(), traits));
    Ok(Opened { tower: Box::new(identified), text })
}

/// The largest eps that packages write for the same published weights: timm has 1e-6 where transformers has 1e-12.
const USUAL_EPS: f64 = 1e-5;

/// Returns what a vision transformer computes beyond names and shapes.
fn settings(identified: &Identified) -> Vec<Setting> {
    let Vit { traits, parts, .. } = &identified.vit;
    // The classifier of DINOv2 also reads the mean of the patches, which a copy without one leaves to it.
    let readout = if parts.readout == Readout::ClassMean { Readout::Class } else { parts.readout };
    vec![
        Setting::new("number of heads", &traits.heads),
        Setting::new("activation", &traits.activation),
        Setting::new("epsilon", &traits.eps),
        Setting::new("rotary positions", &parts.rope),
        Setting::new("readout", &readout),
    ]
}

/// A vision transformer that bella runs itself.
impl Backbone for Identified {
    fn held(&self) -> Held<'_> {
        Held { network: &self.vit, base: &self.base, names: Some(&self.names), head: self.head.as_ref() }
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn naming(&self) -> &'static str {
        self.naming.key
    }

    fn settings(&self) -> Vec<Setting> {
        settings(self)
    }

    fn read_like(&self, path: &Path) -> Result<Alike> {
        let Traits { heads, activation, eps } = self.vit.traits;
        // What the user says of the checkpoint counts for its copies, too.
        let fixed = Fixed {
            heads: (self.sources.heads == Source::User).then_some(heads),
            activation: (self.sources.activation == Source::User).then_some(activation),
            eps: (self.sources.eps == Source::User).then_some(eps),
            ..Fixed::default()
        };
        let mut found = folder::identify(path, &fixed)?;
        let other = &mut found.vit.traits.eps;
        if found.naming.key != self.naming.key && other.max(eps) <= USUAL_EPS {
            *other = eps;
        }
        Ok(Alike { settings: settings(&found), parameters: found.base, head: found.head })
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
