//! A few samples and what a model says of them, stored beside an export so that whoever loads it can compare.

use std::fs;
use std::path::Path;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::base::tensor_file::State;
use crate::model::{Example, Input};
use crate::predict::Predictor;
use crate::tasks::Task;

/// The name of the file.
pub const FILE: &str = "expected.safetensors";

/// The metadata entry with the names of the files of the model, as a list of JSON. A later export tells by it what else lies there.
pub const FILES: &str = "files";

/// Returns the sorted names of what lies in a folder.
///
/// # Errors
/// Fails if it cannot be read.
pub fn names(folder: &Path) -> Result<Vec<String>> {
    let all = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = all.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Samples and the logits of some models.
pub struct Expected {
    samples: Example,
    /// The logits, `[k, B, C]`; of a network that writes answers those of all tokens after the prompt, `[k, B, V]`.
    logits: Tensor,
}

impl Expected {
    /// Predicts samples with the models that leave.
    ///
    /// # Errors
    /// Fails if prediction fails.
    pub fn of(task: &dyn Task, predictor: &Predictor, samples: Example) -> Result<Expected> {
        let logits = task.logits(predictor, &Input::Stored(samples.stored.on(predictor.model.device)))?;
        let logits = logits.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
        Ok(Expected { samples, logits })
    }

    /// Writes `expected.safetensors` beside the files of a model: what the network takes, and `logits` `[B, C]` of the model.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&self, model: usize, folder: &Path) -> Result<()> {
        self.state(&self.logits.get(model as i64), folder)?.write(&folder.join(FILE))
    }

    /// Writes the same with the logits `[k, B, C]` of all models. `images` are bytes `[B, 3, h, w]`, if asked for; texts are padded to
    /// `tokens` tokens.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write_all(&self, with_images: bool, tokens: i64, folder: &Path) -> Result<()> {
        let mut state = self.state(&self.logits, folder)?;
        for (name, tensor) in self.samples.taken.iter().filter(|(_, tensor)| tensor.dim() == 2) {
            state.put(name, &tensor.constant_pad_nd([0, tokens - tensor.size()[1]]));
        }
        if let (true, Some(images)) = (with_images, &self.samples.images) {
            state.put("images", images);
        }
        state.write(&folder.join(FILE))
    }

    /// Returns the names of what the network takes, in the order of its arguments.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.samples.taken.iter().map(|(name, _)| *name)
    }

    fn state(&self, logits: &Tensor, folder: &Path) -> Result<State> {
        let mut state = State::default();
        state.describe(FILES, serde_json::to_string(&names(folder)?)?);
        self.samples.taken.iter().for_each(|(name, tensor)| state.put(name, &tensor.contiguous()));
        state.put("logits", logits);
        Ok(state)
    }
}
