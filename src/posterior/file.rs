//! `posterior.safetensors`: a posterior, with its class names and the hashes of the files it was trained from.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::Device;

use super::Posterior;
use crate::base::tensor_file::State;

/// A posterior as a run stores it.
pub struct Stored {
    pub posterior: Posterior,
    pub classes: Vec<String>,
    /// The hashes of the files that it was trained from, concatenated.
    pub file_hashes: String,
}

impl Stored {
    /// Writes the posterior to a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut state = State::default();
        self.posterior.save("", &mut state);
        state.put_text("classes", &serde_json::to_string(&self.classes).context("cannot write the class names")?);
        state.put_text("file_hashes", &self.file_hashes);
        state.write(path)
    }

    /// Reads a posterior and moves it to a device.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is damaged.
    pub fn read(path: &Path, device: Device) -> Result<Stored> {
        let state =
            State::read(path).context("the posterior cannot be used (`bella train --force` trains it again)")?;
        let posterior = Posterior::load("", &state, device).with_context(|| path.display().to_string())?;
        let classes = serde_json::from_str(&state.text("classes")?);
        let classes = classes.with_context(|| format!("{}: the class names are damaged", path.display()))?;
        Ok(Stored { posterior, classes, file_hashes: state.text("file_hashes")? })
    }

    /// Checks that the posterior was trained from files with these hashes, the first of which is that of `checkpoint`.
    /// A posterior is an update of one checkpoint and is meaningless with another.
    ///
    /// # Errors
    /// Fails if the hashes differ.
    pub fn check_files(&self, file_hashes: &str, checkpoint: &Path) -> Result<()> {
        ensure!(
            file_hashes == self.file_hashes,
            "{}: the checkpoint or the head's file has changed since the run was trained: put the old one back",
            checkpoint.display()
        );
        Ok(())
    }
}
