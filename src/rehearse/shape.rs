//! The published shapes of stand-ins.

use anyhow::{Result, anyhow, bail};

use super::models::{self, Model};
use crate::experiment::Experiment;
use crate::model::CheckpointKind;
use crate::model::described::Published;
use crate::schema::Choice;

/// A published shape of which a stand-in can be made.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A network of images, as a TorchScript archive.
    Archive(&'static Model),
    /// A language network, as a publisher's folder.
    Folder(&'static Published),
}

impl Shape {
    /// Returns the shape with this key.
    ///
    /// # Errors
    /// Fails if the key is unknown.
    pub fn of_key(key: &str) -> Result<Shape> {
        if let Some(published) = Published::of_key(key) {
            return Ok(Shape::Folder(published));
        }
        let known = || format!("unknown shape `{key}`; known: {}, {}", models::known(), Published::keys().join(", "));
        models::of_key(key).map(Shape::Archive).ok_or_else(|| anyhow!(known()))
    }

    /// Returns the shape that the name of the config's checkpoint tells.
    ///
    /// # Errors
    /// Fails if no known network has such a name.
    pub fn of_name(experiment: &Experiment) -> Result<Shape> {
        let path = &experiment.checkpoint.path.known_as();
        let published = Published::of_path(path);
        match (experiment.checkpoint.kind, published) {
            (CheckpointKind::Native, None) => {
                let stem = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
                models::of_file(&stem).map(Shape::Archive)
            }
            (_, Some(published)) => Ok(Shape::Folder(published)),
            _ => bail!(
                "checkpoint.path: the shape of `{}` cannot be told from its name: give --shape, one of {}",
                path.file_name().unwrap_or_default().display(),
                Published::keys().join(", ")
            ),
        }
    }

    /// Checks that the shape has the forward pass that the config asks for.
    ///
    /// # Errors
    /// Fails if it has another one.
    pub fn check_kind(self, kind: CheckpointKind) -> Result<()> {
        match self {
            Shape::Archive(_) if kind == CheckpointKind::Native => Ok(()),
            Shape::Archive(model) => {
                bail!("checkpoint.kind = \"{}\": {} is of kind \"native\"", kind.word(), model.about)
            }
            Shape::Folder(published) => published.check_kind(kind),
        }
    }
}
