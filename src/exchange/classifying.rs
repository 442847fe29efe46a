//! Whether what is imported reads a text as its class for classification does: by the layer in front of the classifier.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::formats::peft::WEIGHTS;
use super::found::is_adapter;
use super::{expected, incoming};
use crate::base::tensor_file::State;
use crate::model::Backbone;
use crate::model::families::encoders::encoder;
use crate::model::families::{HEAD, Names};
use crate::model::folder::{Place, model_type_of};
use crate::schema::{Tree, Value};

/// The layer that shows the class for classification in an adapter or a model.
struct Layer {
    /// Its path in that class.
    path: String,
    /// The name of its weight here.
    own: String,
    names: &'static Names,
}

/// Returns whether the adapters or models of all folders read the features of the class for classification, where the checkpoint at a path is
/// read for others.
///
/// # Errors
/// Fails if only some of them do, or if the config asks for other features.
pub fn reads_pooled(folders: &[PathBuf], tower: &dyn Backbone, checkpoint: &Path, tree: &Tree) -> Result<bool> {
    let Some(layer) = tower.classifies_by().and_then(|path| Layer::of(path, checkpoint)) else { return Ok(false) };
    let with = |wanted: bool| folders.iter().find(|folder| layer.is_in(folder) == Some(wanted));
    let Some(holding) = with(true) else { return Ok(false) };
    let (shown, path) = (holding.display(), &layer.path);
    if let Some(lacking) = with(false) {
        bail!(
            "{}: holds no {path}, and {shown} does, so that they read other features of a text: import them in separate runs",
            lacking.display()
        );
    }
    if let Some(features) = stated(tree) {
        bail!(
            "checkpoint.features = {features}: {shown} holds {path}, so that it reads the features of the class for classification: leave the \
             key out, or set it to \"pooled\""
        );
    }
    tracing::info!(
        "{shown} holds {path}: features are read as by the class for classification (checkpoint.features = \"pooled\")"
    );
    Ok(true)
}

/// Returns the features that a config asks for, as written.
fn stated(tree: &Tree) -> Option<&str> {
    let Value::Table(root) = &tree.root.value else { return None };
    let Value::Table(checkpoint) = &root.get("checkpoint")?.value else { return None };
    Some(&checkpoint.get("features")?.written)
}

impl Layer {
    /// Returns the layer at a path of the class for classification of a checkpoint's family.
    fn of(path: String, checkpoint: &Path) -> Option<Layer> {
        let names = encoder(&model_type_of(checkpoint)?)?.names;
        let own = names.canonical(&format!("{path}.weight"))?;
        Some(Layer { path, own, names })
    }

    /// Returns whether the adapter or the model in a folder holds the weight of the layer, in whatever class it was saved; `None` if it cannot
    /// be read, which is reported later.
    fn is_in(&self, folder: &Path) -> Option<bool> {
        let names: Vec<String> = if is_adapter(folder) {
            State::read(&folder.join(WEIGHTS)).ok()?.names()
        } else if self.own == format!("{HEAD}.weight") && expected::head_beside(folder).is_some() {
            // The trained classifier lies beside such a model, and its own one is the checkpoint's.
            return Some(false);
        } else {
            Place::of(folder).ok()?.unread(true).ok()?.into_iter().map(|(name, _)| name).collect()
        };
        Some(names.iter().any(|name| self.names.canonical(&incoming::inner(name)).as_ref() == Some(&self.own)))
    }
}
