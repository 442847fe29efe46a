//! The entry of a format of exports. The formats are in [`formats`](super::formats).

use std::path::Path;

use anyhow::Result;

use super::expected::Expected;
use super::graph::Built;
use super::modules::Target;
use super::outgoing::Outgoing;
use super::python::Places;

/// A format of an export.
pub struct Format {
    /// The word of `--to`.
    pub key: &'static str,
    /// The content of the folder.
    pub about: &'static str,
    pub leaves: Leaves,
}

/// The way in which models are written: what a format needs decides it.
pub enum Leaves {
    /// One folder a model, by the names of layers in a package.
    Apart(Apart),
    /// One file for all models, by the graph of operations of their network.
    Together(Together),
}

/// Writes one folder a model.
pub struct Apart {
    /// Fails if the models cannot leave in this format.
    pub check: fn(&Outgoing, &Target) -> Result<()>,
    /// Writes one model into an existing folder.
    pub write: fn(&Outgoing, &Target, usize, &Path) -> Result<()>,
    /// Returns the Python that loads the first model of a folder and compares its logits with the expected ones.
    pub lines: fn(&Outgoing, &Target, &Places) -> Result<String>,
    /// The same for a module that runs by its own code; `None` if the format has no place for one.
    pub modules: Option<Modules>,
}

/// Writes modules that run by their own code.
pub struct Modules {
    pub write: fn(&Outgoing, usize, &Path) -> Result<()>,
    pub lines: fn(&Outgoing, &Expected, &Path) -> Result<String>,
}

/// The entries of a file's metadata.
pub type Described = [(&'static str, String)];

/// Writes one file for all models.
pub struct Together {
    /// Writes a graph with its metadata into an existing folder.
    pub write: fn(&Built, &Described, &Path) -> Result<()>,
    /// Returns the Python that runs the file in a folder on inputs of these names and compares its logits with the expected ones.
    pub lines: fn(&str, &[&str]) -> String,
}

impl Leaves {
    /// Returns how modules are written that run by their own code.
    pub fn modules(&self) -> Option<&Modules> {
        match self {
            Leaves::Apart(format) => format.modules.as_ref(),
            Leaves::Together(_) => None,
        }
    }

    /// Returns whether all models are in one file.
    pub fn is_whole(&self) -> bool {
        matches!(self, Leaves::Together(_))
    }
}
