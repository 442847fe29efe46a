//! Looks at the checkpoint of a user: its normalisation, classifier and text tower, on which a first config depends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::hub;
use crate::model::OpenedCheckpoint;
use crate::model::folder::Preprocessing;
use crate::model::module::{Opened, Wanted, open};
use crate::model::network::{Network, SlotKind};
use crate::model::recognition::identify::{Fixed, Identified};

/// The low-rank subspace of a vision transformer, as text.
const LOW_RANK: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"mlp.fc\", \"mlp.proj\"] # also attn.qkv, attn.proj\n";

/// A network that has been opened and self-checked.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The path or the name, as the user gives it.
    pub path: PathBuf,
    /// A description in one line.
    pub about: String,
    /// The value of `checkpoint.normalize` with the reason for it; `None` if files beside the weights tell it.
    pub normalize: Option<(&'static str, &'static str)>,
    /// The number of classes of the checkpoint's own classifier, if it has one.
    pub classes: Option<usize>,
    /// Whether it has a text tower, from which a classifier can be built.
    pub has_text: bool,
    /// The number of pixels per side.
    pub image_size: usize,
    /// Whether it runs by its own forward.
    pub is_module: bool,
    /// The table of the low-rank subspace, or of the one that takes its place where there is nothing to adapt.
    pub low_rank: String,
}

impl Checkpoint {
    /// Opens a checkpoint as training would: a vision transformer, or a module of images with `module_size` pixels per
    /// side.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if its network is not known.
    pub fn look(path: &Path, module_size: Option<i64>) -> Result<Checkpoint> {
        let local = hub::local(path)?;
        anyhow::ensure!(local.exists(), "{}: no such file or folder", path.display());
        let found = match module_size {
            Some(side) => Checkpoint::look_at_module(&local, side),
            None => Checkpoint::look_at_vit(&local),
        }?;
        Ok(Checkpoint { path: path.to_path_buf(), ..found })
    }

    fn look_at_vit(path: &Path) -> Result<Checkpoint> {
        let opened = OpenedCheckpoint::open(path, Fixed::default())?;
        let has_text = opened.text().context("the text tower")?.is_some();
        let Identified { vit, naming, head, .. } = &opened.identified;
        let geometry = &vit.geometry;
        let side = geometry.image_size();
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{} ViT, width {}, {} blocks, patch {}, {side} px{}",
                naming.key,
                geometry.width,
                geometry.blocks,
                geometry.patch,
                if has_text { ", with a text tower" } else { "" }
            ),
            normalize: Preprocessing::of(path).normalize.is_none().then_some(naming.normalize),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text,
            image_size: side as usize,
            is_module: false,
            low_rank: LOW_RANK.into(),
        })
    }

    fn look_at_module(path: &Path, side: i64) -> Result<Checkpoint> {
        let Opened { module, base, head, .. } = open(path, &Wanted::Images(side))?;
        let slots = module.slots();
        let has = |kind: SlotKind| slots.iter().any(|slot| slot.kind == kind);
        let targets: Vec<&str> = [(SlotKind::Linear, "\"linear\""), (SlotKind::Pointwise, "\"pointwise\"")]
            .into_iter()
            .filter_map(|(kind, target)| has(kind).then_some(target))
            .collect();
        let low_rank = match &targets[..] {
            [] => "[subspace.full] # the module has no linear layers or 1 x 1 convolutions to adapt\n".to_string(),
            targets => format!("[subspace.low-rank]\nrank = 4\ntargets = [{}]\n", targets.join(", ")),
        };
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!("a module with {} parameters, {side} px", base.count()),
            normalize: Some((
                "\"imagenet\"",
                "as most of torchvision's and timm's networks; compare with its model card",
            )),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text: false,
            image_size: side as usize,
            is_module: true,
            low_rank,
        })
    }
}
