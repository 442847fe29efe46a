//! Checkpoints in the form in which their publishers offer them: a folder with `config.json` and safetensors weights,
//! from transformers or timm. Nothing in it is executed.
//!
//! The values that names and shapes do not tell (heads, activation, epsilon, rotary positions) come from the folder's
//! config, where an absent key means the default of its class. Such a folder has no forward pass of its own to compare
//! with. Instead, every tensor must have a place in the native network and every place a tensor. If there is a file
//! `reference.safetensors` (`pixels` and `features`) beside the weights, the native features must agree with it.

mod config;
mod preprocessing;
mod weights;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor, no_grad};

use crate::model::network::{Network, Weights};
use crate::model::vit::forward::Vit;
use crate::model::vit::identify::{Difference, Evidence, Fixed, Identified, IdentifiedText, compare};
use crate::model::vit::parts::Parts;
use crate::model::vit::settle::MAX_DIFFERENCE_F32;
use crate::model::vit::text::{TextTower, TextWeights};
use crate::model::vit::{Named, heads_fit, recognise};
use config::Config;

pub use preprocessing::Preprocessing;
pub use weights::files;

/// The name of the file that a network's own package may leave beside the weights.
const REFERENCE: &str = "reference.safetensors";

/// Reads the network of a folder.
///
/// # Errors
/// Fails if the folder has no config or no weights, if its model type is unknown, if tensors are missing or left over,
/// if shapes contradict the config, or if the features differ from the reference.
pub fn identify(folder: &Path, fixed: Fixed) -> Result<Identified> {
    let shown = || folder.display().to_string();
    let config = Config::read(folder)?;
    let tensors = weights::read(folder)?;
    let stored = tensors.iter().max_by_key(|(_, t)| t.numel()).map_or(Kind::Float, |(_, t)| t.kind());
    let named = recognise(&tensors, config.image_size()?).with_context(shown)?;
    let Named { naming, geometry, parts, base, head } = named;
    let traits = config.traits(&geometry, fixed).with_context(shown)?;
    let readout = config.readout(parts.readout)?;
    let parts = Parts { rope: config.rope()?, resize: config.resize(), readout, ..parts };
    config.check(&geometry, &parts, head.is_some()).with_context(shown)?;
    let vit = Vit::new(geometry, traits, parts);
    let reference = reference(folder, &vit, &base)?;
    Ok(Identified { vit, naming: naming.key, base, head, evidence: Evidence::Config { reference }, stored })
}

/// Reads CLIP's text tower of a folder; `None` if it has none that bella knows.
///
/// # Errors
/// Fails if the folder cannot be read, or if the text tower has parts that CLIP's does not have.
pub fn identify_text(folder: &Path) -> Result<Option<IdentifiedText>> {
    let config = Config::read(folder)?;
    let shown = || format!("{}: text tower", folder.display());
    let Some(weights) = TextWeights::recognise(&weights::read(folder)?).with_context(shown)? else { return Ok(None) };
    let geometry = weights.geometry.clone();
    let Some(traits) = config.text(geometry.width).with_context(shown)? else { return Ok(None) };
    ensure!(heads_fit(traits.heads, geometry.width), "{}: {} heads do not divide its width", shown(), traits.heads);
    let evidence = Evidence::Config { reference: None };
    Ok(Some(IdentifiedText { tower: TextTower { geometry, traits }, weights, evidence }))
}

/// Returns the difference from the features in the folder's reference, if there is one.
///
/// # Errors
/// Fails if the difference is too large.
fn reference(folder: &Path, vit: &Vit, base: &crate::model::network::Parameters) -> Result<Option<Difference>> {
    let path = folder.join(REFERENCE);
    if !path.is_file() {
        return Ok(None);
    }
    let tensors = weights::of_file(&path)?;
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
    let native = no_grad(|| vit.forward(&Weights::frozen(base), &pixels.unsqueeze(0))).squeeze_dim(0);
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

/// Returns the files that a checkpoint consists of: the archive, or a folder's configs and weights.
///
/// # Errors
/// Fails if the folder has no weights.
pub fn content(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut all: Vec<PathBuf> = config::file(path).into_iter().collect();
    all.extend([path.join(preprocessing::FILE)].into_iter().filter(|file| file.is_file()));
    all.extend(files(path)?);
    Ok(all)
}
