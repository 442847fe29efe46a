//! `[head.zero-shot]`: CLIP's frozen text embeddings as a classifier on L2-normalised image features (Radford et al.
//! 2021, arXiv 2103.00020, section 3.1.2). They are read from a file, or built from class names and prompt templates.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::safetensors_line;
use crate::model::head::names::ClassNames;
use crate::model::head::prompts::Prompts;
use crate::model::head::{Entry, Head, HeadContext, HeadSpec, Training};
use crate::schema::{Reader, Resolved};

pub static ENTRY: Entry = Entry {
    key: "zero-shot",
    about: "frozen text embeddings [C, d] times the logit scale, from templates or a file; features L2-normalised",
    read: |reader| Box::new(ZeroShot::read(reader)),
};

enum ZeroShot {
    /// A safetensors file with `weight` `[C, d]` and optionally `bias` `[C]`.
    Weights(PathBuf),
    /// Class names and templates, embedded by the checkpoint's own text tower.
    Prompts(Prompts),
}

impl ZeroShot {
    fn read(reader: &Reader) -> ZeroShot {
        let weights = reader
            .path("weights")
            .about("File with a ready head: `weight` [C, d], rows scaled by the logit scale.")
            .optional();
        let prompts = Prompts::read(reader);
        match weights {
            None => ZeroShot::Prompts(prompts),
            Some(path) => {
                for key in ["templates", "class_names", "class_names_file"].into_iter().filter(|key| reader.has(key)) {
                    reader.problem(key, "the texts of head.zero-shot.weights are settled: give either weights or this");
                }
                ZeroShot::Weights(path)
            }
        }
    }
}

impl Resolved for ZeroShot {
    fn resolved(&self) -> toml::Table {
        match self {
            ZeroShot::Weights(path) => {
                toml::Table::from_iter([("weights".to_string(), path.display().to_string().into())])
            }
            ZeroShot::Prompts(prompts) => prompts.resolved(),
        }
    }
}

impl HeadSpec for ZeroShot {
    fn build(&self, context: &HeadContext) -> Result<Head> {
        let (weight, bias, texts) = match self {
            ZeroShot::Weights(path) => {
                let (weight, bias) = read_weights(path, context)?;
                (weight, bias, None)
            }
            ZeroShot::Prompts(prompts) => {
                let head = prompts.head(&context.checkpoint, context.classes)?;
                (head.weight, head.bias, Some(head.texts))
            }
        };
        Ok(Head { normalised: true, texts, ..Head::new(weight, bias, self.training()) })
    }

    fn outline(&self, classes: i64, width: i64) -> Head {
        Head { normalised: true, ..Head::zeros(classes, width, self.training()) }
    }

    fn settle(&mut self, data: &str) {
        if let ZeroShot::Prompts(prompts) = self {
            prompts.settle(data);
        }
    }

    fn training(&self) -> Training {
        Training::Never
    }

    fn files(&self) -> Vec<PathBuf> {
        match self {
            ZeroShot::Weights(path) => vec![path.clone()],
            ZeroShot::Prompts(prompts) => match prompts.names() {
                ClassNames::File(path) => vec![path.clone()],
                _ => Vec::new(),
            },
        }
    }
}

/// Returns `weight` `[C, d]` and `bias` `[C]` from a file.
fn read_weights(path: &Path, context: &HeadContext) -> Result<(Tensor, Tensor)> {
    let shown = path.display();
    let tensors = read_tensors(path)?;
    let find = |name: &str| tensors.iter().find(|(known, _)| known == name).map(|(_, t)| t.to_kind(Kind::Float));
    let weight = find("weight").with_context(|| format!("{shown}: has no tensor named `weight`"))?;
    let (classes, width) =
        weight.size2().map_err(|_| anyhow::anyhow!("{shown}: `weight` is not of shape [classes, width]"))?;
    ensure!(
        width == context.width,
        "{shown}: the head is {width} wide, but the checkpoint's features are {} wide: use the head of this checkpoint",
        context.width
    );
    ensure!(
        classes == context.classes.len() as i64,
        "{shown}: the head has {classes} classes, but the data set has {}: use the head of this data set",
        context.classes.len()
    );
    let bias = find("bias").unwrap_or_else(|| Tensor::zeros([classes], (Kind::Float, weight.device())));
    ensure!(bias.size() == [classes], "{shown}: `bias` is not of shape [{classes}]");
    Ok((weight, bias))
}

fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>> {
    ensure!(path.is_file(), "{}: no such file: set head.zero-shot.weights", path.display());
    crate::base::checksummed::check_file(path).with_context(|| path.display().to_string())?;
    Tensor::read_safetensors(path)
        .map_err(|e| anyhow::anyhow!("{}: not a readable safetensors file: {}", path.display(), safetensors_line(&e)))
}
