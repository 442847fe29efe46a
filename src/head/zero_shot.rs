//! `[head.zero-shot]`: CLIP's frozen text embeddings as a classifier on L2-normalised image features
//! (Radford et al. 2021, arXiv 2103.00020, section 3.1.2).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tch::{Kind, Tensor};

use super::{Entry, Head, HeadSpec, Surroundings, Training};
use crate::config::Reader;

pub static ENTRY: Entry = Entry {
    key: "zero-shot",
    about: "frozen text embeddings [C, d] times the logit scale; features L2-normalised",
    read: |reader| Box::new(ZeroShot::read(reader)),
};

#[derive(Serialize)]
struct ZeroShot {
    /// safetensors with `weight` `[C, d]` and optionally `bias` `[C]`.
    weights: PathBuf,
}

impl ZeroShot {
    fn read(reader: &Reader) -> ZeroShot {
        ZeroShot { weights: reader.path("weights").required() }
    }
}

impl HeadSpec for ZeroShot {
    fn build(&self, surroundings: &Surroundings) -> Result<Head> {
        let shown = self.weights.display();
        let tensors = read_tensors(&self.weights)?;
        let find = |name: &str| tensors.iter().find(|(known, _)| known == name).map(|(_, t)| t.to_kind(Kind::Float));
        let weight = find("weight").with_context(|| format!("{shown}: has no tensor named `weight`"))?;
        let (classes, width) =
            weight.size2().map_err(|_| anyhow::anyhow!("{shown}: `weight` is not of shape [classes, width]"))?;
        ensure!(
            width == surroundings.width,
            "{shown}: the head is {width} wide, but the checkpoint's features are {} wide: use the head of this checkpoint",
            surroundings.width
        );
        ensure!(
            classes == surroundings.classes.len() as i64,
            "{shown}: the head has {classes} classes, but the data set has {}: use the head of this data set",
            surroundings.classes.len()
        );
        let bias = find("bias").unwrap_or_else(|| Tensor::zeros([classes], (Kind::Float, weight.device())));
        ensure!(bias.size() == [classes], "{shown}: `bias` is not of shape [{classes}]");
        Ok(Head { weight, bias, normalised: true, training: self.training() })
    }

    fn training(&self) -> Training {
        Training::Never
    }

    fn resolved(&self) -> toml::Table {
        crate::config::table(self)
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.weights.clone()]
    }
}

fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>> {
    ensure!(path.is_file(), "{}: no such file: set head.zero-shot.weights", path.display());
    Tensor::read_safetensors(path).map_err(|e| {
        anyhow::anyhow!("{}: not a readable safetensors file: {}", path.display(), crate::tensor::first_line(&e))
    })
}
