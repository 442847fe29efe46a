//! Checkpoints in the form in which their publishers offer them: a folder with a config and weights, or a file of weights,
//! from transformers, timm or open_clip. Nothing in it is executed.
//!
//! The values that names and shapes do not tell (heads, activation, epsilon, rotary positions, the readout) come from the
//! config beside the weights, where an absent key means the default of its class, from timm's name of the architecture, or
//! from the user. Such weights have no forward pass of their own to compare with. Instead, every tensor must have a place
//! in the native network and every place a tensor. If there is a file `reference.safetensors` (`pixels` and `features`)
//! beside the weights, the native features must agree with it.

mod added_tokens;
mod config;
mod open_clip;
mod preprocessing;
mod processors;
pub mod quantised;
pub mod sentences;
#[cfg(test)]
mod tests;
pub mod texts;
mod timm;
pub mod tokenizer_settings;
mod traits;
mod unread;
mod wanted;
mod weights;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use tch::{Kind, Tensor, no_grad};

use crate::base::files::is_there;
use crate::data::fields::{Fields, PIXELS};
use crate::hub::{ADDED_TOKENS, PREPARATION, TOKENIZER, WRITING};
use crate::model::families::encoders::encoder;
use crate::model::network::{Network, Parameters, Weights};
use crate::model::recognition::complete::check_readout;
use crate::model::recognition::identify::{Difference, Evidence, Fixed, Identified, IdentifiedText, Source, compare};
use crate::model::recognition::infer::MAX_DIFFERENCE_F32;
use crate::model::recognition::text::TextWeights;
use crate::model::recognition::{Expected, Named, Naming, recognise};
use crate::model::vit::forward::Vit;
use crate::model::vit::heads_fit;
use crate::model::vit::parts::Parts;
use crate::model::vit::text::TextTower;
use config::Config;
use traits::Stated;
use weights::REFERENCE;

pub use config::stranger;
pub use preprocessing::{stated, usual_normalize};
pub use unread::Unread;
pub use wanted::Preprocessing;
pub use weights::{Place, file as config_file, has_weights, home, input_size, is_plain, model_type_of, values_of};

/// Advice for weights that are no whole vision transformer's of a known kind.
const OTHERS: &str = "download the weights again if they should be whole; scripts/export_torchscript.py exports other \
                      networks, which train with checkpoint.kind = \"module\"";

/// Reads the network of a folder, or of a file of weights.
///
/// # Errors
/// Fails if there are no weights, if nothing tells what network they are of, if tensors are missing or left over, if shapes
/// contradict the config, or if the features differ from the reference.
pub fn identify(path: &Path, fixed: &Fixed) -> Result<Identified> {
    let shown = || path.display().to_string();
    let place = Place::of(path)?;
    let config = Config::read(&place, fixed)?;
    check_preparation(&place)?;
    let tensors = place.read()?;
    let stored = tensors.iter().max_by_key(|(_, t)| t.numel()).map_or(Kind::Float, |(_, t)| t.kind());
    let own = config.required().with_context(shown)?;
    let required = |naming: &Naming| own.or(naming.required);
    let expected = Expected { image_size: config.image_size()?, naming: config.naming(), required: Some(&required) };
    let mut named = recognise(&tensors, expected).map_err(|why| anyhow!("{}: {why:#}: {OTHERS}", shown()))?;
    if config.projects_by_head() {
        named.project_by_head();
    }
    config.check(&named, fixed).with_context(shown)?;
    let Named { naming, geometry, parts, base, head, names, .. } = named;
    let Stated { traits, mut sources } = config.traits(&geometry, &base, fixed).with_context(shown)?;
    let rope = config.rope(&parts, base.get("position").is_some()).with_context(shown)?;
    if rope.is_none() {
        sources.rope = Source::Weights;
    }
    let parts = Parts { rope, resize: config.resize(naming), readout: config.readout(parts.readout)?, ..parts };
    check_readout(&geometry, &parts, &base).with_context(shown)?;
    let channels = geometry.width / traits.heads;
    ensure!(
        rope.is_none() || channels % 4 == 0,
        "{}: rotary positions need heads of 4, 8, … channels, not {channels}",
        shown()
    );
    let vit = Vit::new(geometry, traits, parts);
    let reference = reference(&place.folder, &vit, &base)?;
    let evidence = Evidence::Config { reference };
    let fixed_size = config.fixed_size();
    Ok(Identified { vit, naming, base, head, evidence, sources, stored, names, fixed_size })
}

/// Checks the files of the preparation of images, which may be missing.
///
/// # Errors
/// Fails if one that is asked is there and no JSON.
pub fn check_preparation(place: &Place) -> Result<()> {
    stated(&place.folder).map(drop)
}

/// Reads the text tower of a folder, or of a file of weights; `None` if it has none that bella knows.
///
/// # Errors
/// Fails if the folder cannot be read, or if the text tower has parts that CLIP's does not have.
pub fn identify_text(path: &Path, fixed: &Fixed) -> Result<Option<IdentifiedText>> {
    let place = Place::of(path)?;
    let config = Config::read(&place, fixed)?;
    let shown = || format!("{}: text tower", path.display());
    let expected = config.text_expected();
    let Some(weights) = TextWeights::recognise(&place.read()?, expected).with_context(shown)? else { return Ok(None) };
    let geometry = weights.geometry.clone();
    let Some(traits) = config.text(&geometry).with_context(shown)? else { return Ok(None) };
    ensure!(heads_fit(traits.heads, geometry.width), "{}: {} heads do not divide its width", shown(), traits.heads);
    let evidence = Evidence::Config { reference: None };
    Ok(Some(IdentifiedText { tower: TextTower { geometry, traits }, weights, evidence }))
}

/// Returns the difference from the features in the folder's reference, if there is one.
///
/// # Errors
/// Fails if the difference is too large.
fn reference(folder: &Path, vit: &Vit, base: &Parameters) -> Result<Option<Difference>> {
    let path = folder.join(REFERENCE);
    if !is_there(&path) {
        return Ok(None);
    }
    let tensors = weights::of_safetensors(&path)?;
    let get = |name: &str| -> Result<Tensor> {
        let found = tensors.iter().find(|(known, _)| known == name);
        Ok(found.with_context(|| format!("{}: has no tensor `{name}`", path.display()))?.1.to_kind(Kind::Float))
    };
    let (pixels, features) = (get("pixels")?, get("features")?);
    let size = vit.geometry.image_size();
    ensure!(
        pixels.dim() == 4 && pixels.size()[1..] == [3, size, size],
        "{}: `pixels` have shape {:?}, but the network takes [B, 3, {size}, {size}]",
        path.display(),
        pixels.size()
    );
    let images = Fields::of(PIXELS, pixels.unsqueeze(0));
    let native = no_grad(|| vit.forward(&Weights::frozen(base), &images)).squeeze_dim(0);
    let difference = compare(&native, &features);
    ensure!(
        difference.relative <= MAX_DIFFERENCE_F32,
        "{}: the native features differ from it by {:.1e} (cosine {:.5}), more than {MAX_DIFFERENCE_F32:.0e}: set \
         checkpoint.heads, checkpoint.activation or checkpoint.eps, or remove the file if it is of other weights",
        path.display(),
        difference.relative,
        difference.cosine
    );
    Ok(Some(difference))
}

/// Returns the files that a checkpoint consists of: the archive, or the configs (with that of how texts are written), the tokenizer, the
/// weights, and what a text encoder's texts are read by.
///
/// # Errors
/// Fails if there are no weights.
pub fn content(path: &Path) -> Result<Vec<PathBuf>> {
    if !has_weights(path)? {
        return Ok(vec![path.to_path_buf()]);
    }
    let place = Place::of(path)?;
    let asked = stated(&place.folder)?.map(|(name, _)| name).filter(|name| *name != PREPARATION);
    let named = asked.into_iter().chain([PREPARATION, WRITING]).chain(TOKENIZER).chain(ADDED_TOKENS);
    let named = named.map(|name| place.folder.join(name));
    let beside = weights::file(&place.path).into_iter().chain(named);
    let mut all: Vec<PathBuf> = beside.filter(|file| is_there(file)).collect();
    all.extend(place.files());
    if model_type_of(path).is_some_and(|model_type| encoder(&model_type).is_some()) {
        all.extend(sentences::files(&place.folder));
    }
    Ok(all)
}
