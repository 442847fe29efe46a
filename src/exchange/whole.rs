//! A whole posterior in one file: normalised pixels `[B, 3, S, S]`, or bytes, in; the logits `[members, B, C]` of every model,
//! their mean probabilities `[B, C]` and their mutual information `[B]` out.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use tch::Kind;

use super::expected::Expected;
use super::graph::embed::Preparing;
use super::graph::forward::{Built, build};
use super::graph::members::Members;
use super::onnx::Takes;
use super::outgoing::Outgoing;
use super::{onnx, script};
use crate::posterior::description::Preprocessing;
use crate::schema::words;

words! {
    /// The type of the numbers in a file of a whole posterior. Logits are f32 in each.
    pub enum Numbers { F32 = "f32", F16 = "f16", Bf16 = "bf16" }
}

impl Numbers {
    fn kind(self) -> Kind {
        match self {
            Numbers::F32 => Kind::Float,
            Numbers::F16 => Kind::Half,
            Numbers::Bf16 => Kind::BFloat16,
        }
    }
}

/// The program that runs the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    TorchScript,
    Onnx,
}

/// The kind of a file, the type of its numbers, and whether it prepares images.
#[derive(Clone, Copy)]
pub struct Form {
    pub runner: Runner,
    pub numbers: Numbers,
    /// Whether images are resized and normalised in it.
    pub prepares: bool,
}

/// Writes all models as one file, with `expected.safetensors` beside it, into an existing folder.
///
/// # Errors
/// Fails if the network is no vision transformer, or if a file cannot be written.
pub fn write(outgoing: &Outgoing, form: Form, expected: &Expected, folder: &Path) -> Result<()> {
    let vit = outgoing.session.vit.as_ref().context("only vision transformers are exported as one file")?;
    let images = outgoing.session.model.images()?;
    let normalize = outgoing.experiment.checkpoint.normalization()?;
    let preparing = form.prepares.then(|| Preparing { normalize, interpolation: images.interpolation() });
    let built = build(vit, &Members::of(outgoing), form.numbers.kind(), preparing);
    match form.runner {
        Runner::TorchScript => script::write(&built, folder)?,
        Runner::Onnx => write_onnx(outgoing, &built, form.prepares, folder)?,
    }
    expected.write_all(form.prepares, folder)
}

fn write_onnx(outgoing: &Outgoing, built: &Built, prepares: bool, folder: &Path) -> Result<()> {
    let images = outgoing.session.model.images()?;
    let preprocessing = Preprocessing::new(images.size(), &outgoing.experiment.checkpoint)?;
    let described = [
        ("members", json!(outgoing.names).to_string()),
        ("classes", json!(outgoing.session.classes).to_string()),
        ("preprocessing", serde_json::to_string(&preprocessing)?),
    ];
    let takes = if prepares { Takes::Bytes } else { Takes::Pixels };
    onnx::write(built, takes, &described, onnx::MOST_INSIDE, folder)
}
