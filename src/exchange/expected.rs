//! A few samples and what a model says of them, stored beside an export so that whoever loads it can compare.

use std::path::Path;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use super::samples::Samples;
use crate::base::tensor_file::State;
use crate::predict::Predictor;
use crate::tasks::Task;

/// The name of the file.
pub const FILE: &str = "expected.safetensors";

/// Samples and the logits of some models.
pub struct Expected {
    samples: Samples,
    /// The logits, `[k, B, C]`; of a network that writes answers those of all tokens after the prompt, `[k, B, V]`.
    logits: Tensor,
}

impl Expected {
    /// Predicts samples with the models that leave.
    ///
    /// # Errors
    /// Fails if prediction fails.
    pub fn of(task: &dyn Task, predictor: &Predictor, samples: Samples) -> Result<Expected> {
        let logits = task.logits(predictor, &samples.input(predictor.model.device))?;
        let logits = logits.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
        Ok(Expected { samples, logits })
    }

    /// Writes `expected.safetensors`: what the network takes, and `logits` `[B, C]` of one model.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&self, model: usize, folder: &Path) -> Result<()> {
        self.state(&self.logits.get(model as i64)).write(&folder.join(FILE))
    }

    /// Writes the same with the logits `[k, B, C]` of all models. `images` are bytes `[B, 3, h, w]`, if asked for; texts are padded to
    /// `tokens` tokens.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write_all(&self, with_images: bool, tokens: i64, folder: &Path) -> Result<()> {
        let mut state = self.state(&self.logits);
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

    fn state(&self, logits: &Tensor) -> State {
        let mut state = State::default();
        self.samples.taken.iter().for_each(|(name, tensor)| state.put(name, &tensor.contiguous()));
        state.put("logits", logits);
        state
    }
}
