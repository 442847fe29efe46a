//! Looks at the checkpoint of a user: its normalisation, classifier and text tower, on which a first config depends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::model::OpenedCheckpoint;
use crate::model::folder::Preprocessing;
use crate::model::vit::identify::{Fixed, Identified};

/// A vision transformer that has been opened and self-checked.
#[derive(Clone, Debug)]
pub struct Checkpoint {
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
}

impl Checkpoint {
    /// Opens a checkpoint as training would.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if its network is not known.
    pub fn look(path: &Path) -> Result<Checkpoint> {
        anyhow::ensure!(path.exists(), "{}: no such file or folder", path.display());
        let opened = OpenedCheckpoint::open(path, Fixed::default())?;
        let has_text = opened.text().context("the text tower")?.is_some();
        let Identified { vit, naming, head, .. } = &opened.identified;
        let geometry = &vit.geometry;
        let side = geometry.image_size();
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{naming} ViT, width {}, {} blocks, patch {}, {side} px{}",
                geometry.width,
                geometry.blocks,
                geometry.patch,
                if has_text { ", with a text tower" } else { "" }
            ),
            normalize: Preprocessing::of(path).normalize.is_none().then(|| usual(naming)),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text,
            image_size: side as usize,
        })
    }
}

/// Returns the normalisation that most checkpoints of a naming were trained with, and why.
fn usual(naming: &str) -> (&'static str, &'static str) {
    match naming {
        "clip" => ("\"clip\"", "as all models of CLIP"),
        "torchvision" => ("\"imagenet\"", "as torchvision's models"),
        _ => (
            "{ mean = [0.5, 0.5, 0.5], std = [0.5, 0.5, 0.5] }",
            "as most of timm's ViTs; the file does not tell, so compare with its model card (\"imagenet\" or \"clip\")",
        ),
    }
}
