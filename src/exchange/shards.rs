//! The files of weights of a folder that leaves: as many as the checkpoint has, by the names for which the package looks.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::config;
use crate::base::tensor_file::State;
use crate::model::recognition::Package;

/// The single file for which timm, transformers and open_clip look.
const FILES: [&str; 2] = ["model.safetensors", "open_clip_model.safetensors"];

/// The index of several files.
const INDEX: &str = "model.safetensors.index.json";

/// Files of weights that are written one by one.
pub struct Files<'a> {
    folder: &'a Path,
    package: Package,
    /// The number of files that an index names; `None` for a single file.
    indexed: Option<usize>,
    written: usize,
    /// The file of each tensor.
    map: BTreeMap<String, String>,
    /// The size of all tensors in bytes.
    bytes: usize,
}

impl Files<'_> {
    pub fn new(folder: &Path, package: Package, indexed: Option<usize>) -> Files<'_> {
        Files { folder, package, indexed, written: 0, map: BTreeMap::new(), bytes: 0 }
    }

    /// Returns whether one file is left to be written.
    pub fn is_last(&self) -> bool {
        self.written + 1 == self.indexed.unwrap_or(1)
    }

    /// Returns the name of the next file. Files that an index names may have any names in the checkpoint, also those of other files of an
    /// export, so they are numbered as transformers numbers its own.
    fn name(&self) -> String {
        match self.indexed {
            Some(count) => format!("model-{:05}-of-{count:05}.safetensors", self.written + 1),
            None => FILES[usize::from(self.package == Package::OpenClip)].to_string(),
        }
    }

    /// Writes the next file.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&mut self, mut state: State) -> Result<()> {
        let name = self.name();
        for tensor in state.names() {
            let stored = state.get(&tensor)?;
            self.bytes += stored.numel() * stored.kind().elt_size_in_bytes();
            self.map.insert(tensor, name.clone());
        }
        state.describe("format", "pt".to_string());
        self.written += 1;
        state.write(&self.folder.join(name))
    }

    /// Writes the index, if there is to be one.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn finish(self) -> Result<()> {
        if self.indexed.is_none() {
            return Ok(());
        }
        let index = json!({ "metadata": { "total_size": self.bytes }, "weight_map": self.map });
        config::write(&self.folder.join(INDEX), &index)
    }
}
