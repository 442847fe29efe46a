//! The checkpoint of a rehearsal: the config's own, or a stand-in of a shape that its name tells.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use crate::experiment::{Experiment, Training};
use crate::model::kind::Size;
use crate::model::kind::StandIn as Possible;
use crate::rehearse::clip::Clip;
use crate::rehearse::folder::FolderStandIn;
use crate::rehearse::models::{Model, Shape};
use crate::rehearse::{Folder, Options, Scale, WeightsFrom};

/// A stand-in of a checkpoint.
pub enum StandIn {
    Archive { model: &'static Model, clip: Clip },
    Folder(FolderStandIn),
}

impl StandIn {
    pub fn about(&self) -> &'static str {
        match self {
            StandIn::Archive { model, .. } => model.about,
            StandIn::Folder(folder) => folder.published.about,
        }
    }

    /// Returns the number of pixels per side of an image; `None` for a network that sees none.
    pub fn image_size(&self) -> Option<i64> {
        match self {
            StandIn::Archive { clip, .. } => Some(clip.image.image_size()),
            StandIn::Folder(folder) => folder.image_size(),
        }
    }
}

/// The source of a rehearsal's checkpoint.
pub enum Checkpoint {
    Made { stand_in: StandIn, path: PathBuf },
    Real(PathBuf),
}

impl Checkpoint {
    pub fn path(&self) -> &Path {
        match self {
            Checkpoint::Made { path, .. } | Checkpoint::Real(path) => path,
        }
    }

    /// Returns the archive that is made, if the checkpoint is one.
    pub fn archive(&self) -> Option<&Clip> {
        match self {
            Checkpoint::Made { stand_in: StandIn::Archive { clip, .. }, .. } => Some(clip),
            _ => None,
        }
    }

    /// Plans the checkpoint of an experiment without creating any file.
    ///
    /// # Errors
    /// Fails if nothing can stand in for the config's checkpoint.
    pub fn plan(experiment: &Experiment, options: &Options, folder: &Folder) -> Result<Checkpoint> {
        let path = &experiment.checkpoint.path;
        let (wanted, present) = (options.weights == WeightsFrom::RealWherePresent, path.exists());
        if wanted && present {
            return Ok(Checkpoint::Real(experiment.checkpoint.local()?.to_path_buf()));
        }
        check_stand_in(experiment, wanted)?;
        if wanted {
            tracing::warn!("--real-checkpoint: {}: no such file or folder, so a stand-in is rehearsed", path.display());
        }
        let hint = if present { "; or give --real-checkpoint, since it is there" } else { "" };
        let told = || Shape::of_name(experiment).map_err(|why| anyhow!("{why}{hint}"));
        let shape = options.shape.map_or_else(told, Ok)?;
        shape.check_kind(experiment.checkpoint.kind)?;
        match shape {
            Shape::Archive(model) => archive(model, experiment, options.scale, folder),
            Shape::Folder(published) => {
                let made = FolderStandIn::new(published, size(experiment, options.scale), &label_words(experiment)?)?;
                let path = folder.checkpoints().join(made.name());
                Ok(Checkpoint::Made { stand_in: StandIn::Folder(made), path })
            }
        }
    }
}

/// Checks that the checkpoint could be a stand-in.
fn check_stand_in(experiment: &Experiment, wants_real: bool) -> Result<()> {
    let path = &experiment.checkpoint.path;
    let way_out =
        if wants_real { format!("put it at {}", path.display()) } else { "give --real-checkpoint".to_string() };
    if experiment.head.key == "checkpoint" {
        bail!("head.checkpoint: is the checkpoint's own classifier, which a stand-in does not have; {way_out}");
    }
    let kind = experiment.checkpoint.kind.entry();
    if let Possible::Impossible(why) = kind.stand_in {
        bail!("checkpoint.kind = \"{}\": {why}; {way_out}", kind.word);
    }
    Ok(())
}

fn archive(model: &'static Model, experiment: &Experiment, scale: Scale, folder: &Folder) -> Result<Checkpoint> {
    // Only a head from templates reads the text tower; otherwise the archive is made without it.
    let reads_text = experiment.head.key == "zero-shot" && experiment.head.spec.resolved().get("weights").is_none();
    if reads_text && !model.has_text() {
        bail!("head.zero-shot: is built by a text tower, which {} does not have; give another --shape", model.key);
    }
    let (clip, size) = match scale {
        Scale::True => (model.clip(reads_text)?, ""),
        Scale::Tiny => (model.tiny(reads_text)?, "-tiny"),
    };
    let text = if reads_text { "" } else { "-image" };
    let path = folder.checkpoints().join(format!("{}{text}{size}.pt", model.key));
    Ok(Checkpoint::Made { stand_in: StandIn::Archive { model, clip }, path })
}

/// Returns the words that must be one token each, since they are the classes.
fn label_words(experiment: &Experiment) -> Result<Vec<String>> {
    if experiment.head.key == "label-words" { experiment.data.dataset.classes() } else { Ok(Vec::new()) }
}

/// Returns the size of a network of texts.
fn size(experiment: &Experiment, scale: Scale) -> Size {
    let selects = |training: &Training| training.subspace.spec.resolved().contains_key("blocks");
    match scale {
        Scale::True => Size::Published,
        Scale::Tiny if experiment.training.as_ref().is_some_and(selects) => Size::TinyBlocks,
        Scale::Tiny => Size::Tiny,
    }
}
