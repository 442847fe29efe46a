//! `head.safetensors` beside a model that has no place for its head: `weight` `[C, d]` and `bias` `[C]`, for the features.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor_file::State;

/// The name of the file, which `head.zero-shot.weights` reads, too.
pub const FILE: &str = "head.safetensors";

/// Writes the head beside a model.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(weight: &Tensor, bias: &Tensor, folder: &Path) -> Result<()> {
    let mut state = State::default();
    state.put("weight", weight);
    state.put("bias", bias);
    state.write(&folder.join(FILE))
}

/// Returns the lines of Python that apply the head beside a model in the folder `at` to the features.
pub fn lines(at: &str, normalised: bool) -> String {
    let normalise = match normalised {
        true => "    output = torch.nn.functional.normalize(output, dim=-1)\n",
        false => "",
    };
    let load = format!("    head = load_file(\"{at}/head.safetensors\")\n");
    format!("{normalise}{load}    output = output @ head[\"weight\"].T + head[\"bias\"]\n")
}

/// Returns the file beside a model, if there is one.
pub fn beside(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(FILE);
    path.is_file().then_some(path)
}

/// Returns the head beside a model: weight `[C, d]` and bias `[C]`, f32.
///
/// # Errors
/// Fails if there is such a file, but it holds no head.
pub fn read(folder: &Path) -> Result<Option<[Tensor; 2]>> {
    let Some(path) = beside(folder) else { return Ok(None) };
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
