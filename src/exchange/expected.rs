//! Files beside a model that leaves: a few samples and what the model says of them, so that whoever loads it can compare; and
//! `head.safetensors` with `weight` `[C, d]` and `bias` `[C]` for the features, where the model has no place for its head.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::tensor_file::State;
pub use crate::hub::HEAD_FILE;
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

/// The metadata entry of a head that says whether features are L2-normalised before it, `true` or `false`. Heads of others have none.
const NORMALISED: &str = "normalised";

/// Writes the head beside a model. `normalised` says whether features are L2-normalised before it.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_head([weight, bias]: [&Tensor; 2], normalised: bool, folder: &Path) -> Result<()> {
    let mut state = State::default();
    state.describe(NORMALISED, normalised.to_string());
    state.put("weight", weight);
    state.put("bias", bias);
    state.write(&folder.join(HEAD_FILE))
}

/// Returns the lines of Python that apply the head beside a model in the folder `at` to the features.
pub fn head_lines(at: &str, normalised: bool) -> String {
    let normalise = match normalised {
        true => "    output = torch.nn.functional.normalize(output, dim=-1)\n",
        false => "",
    };
    let load = format!("    head = load_file(\"{at}/{HEAD_FILE}\")\n");
    format!("{normalise}{load}    output = output @ head[\"weight\"].T + head[\"bias\"]\n")
}

/// Returns the file of the head beside a model, if there is one.
pub fn head_beside(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(HEAD_FILE);
    path.is_file().then_some(path)
}

/// Checks that the head beside a model, if there is one and it says so, reads features as a run's head does.
///
/// # Errors
/// Fails if it reads others, or if it is no safetensors file.
pub fn expect_features(folder: &Path, normalised: bool) -> Result<()> {
    let Some(path) = head_beside(folder) else { return Ok(()) };
    let state = State::read(&path)?;
    let words = |normalised| if normalised { "L2-normalised features" } else { "features that are not normalised" };
    let other = state.described(NORMALISED).is_some_and(|said| said != normalised.to_string());
    ensure!(
        !other,
        "{}: is a head of {}, and the run's is one of {}: {}",
        path.display(),
        words(!normalised),
        words(normalised),
        if normalised { "use [head.linear]" } else { "name this file in head.zero-shot.weights" }
    );
    Ok(())
}

/// Returns the head beside a model: weight `[C, d]` and bias `[C]`, f32.
///
/// # Errors
/// Fails if there is such a file, but it holds no head.
pub fn read_head(folder: &Path) -> Result<Option<[Tensor; 2]>> {
    let Some(path) = head_beside(folder) else { return Ok(None) };
    let read = || {
        let state = State::read(&path)?;
        let [weight, bias] = [state.get("weight")?, state.get("bias")?].map(|tensor| tensor.to_kind(Kind::Float));
        ensure!(
            weight.dim() == 2 && bias.size() == weight.size()[..1],
            "weight and bias have shapes {:?} and {:?}, where a head has [C, d] and [C]",
            weight.size(),
            bias.size()
        );
        for (name, value) in [("weight", &weight), ("bias", &bias)] {
            ensure!(bool::try_from(value.isfinite().all())?, "{name} holds values that are NaN or infinite");
        }
        Ok([weight, bias])
    };
    read().map(Some).with_context(|| path.display().to_string())
}
