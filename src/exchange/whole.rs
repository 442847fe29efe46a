//! A whole posterior in one file: what the network takes in; the logits `[members, B, C]` of every model, their mean probabilities
//! `[B, C]` and their mutual information `[B]` out.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tch::Kind;

use super::expected::Expected;
use super::graph::build;
use super::graph::members::Leaving;
use super::graph::samples::{Preparing, Taken};
use super::outgoing::Outgoing;
use super::{onnx, script};
use crate::model::Preparation;
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

/// The models as one graph.
pub struct Whole<'a> {
    outgoing: &'a Outgoing<'a>,
    form: Form,
    taken: Taken,
}

impl<'a> Whole<'a> {
    /// Takes models whose network is written over operations.
    ///
    /// # Errors
    /// Fails for another network, or if images are to be prepared that the network does not take.
    pub fn of(outgoing: &'a Outgoing<'a>, form: Form) -> Result<Whole<'a>> {
        let model = &outgoing.session.model;
        ensure!(model.network.written().is_some(), "only networks that bella computes itself are exported as one file");
        let taken = match &model.preparation {
            Preparation::Images(images) if form.prepares => {
                let normalize = outgoing.experiment.checkpoint.normalization()?;
                Taken::Bytes(images.size(), Preparing { normalize, interpolation: images.interpolation() })
            }
            Preparation::Images(images) => Taken::Pixels(images.size()),
            _ if form.prepares => bail!("--preprocess: is for networks of images; this one takes texts: leave it out"),
            Preparation::Texts(tokenizer) => Taken::Texts(tokenizer.most() as i64),
            Preparation::Questions(tokenizer) => Taken::Questions {
                tokens: tokenizer.tokenizer.most() as i64,
                side: tokenizer.image_side,
                normalize: outgoing.experiment.checkpoint.normalization()?,
            },
            Preparation::Encoded(tokenizer) if tokenizer.values == 3 => Taken::Pairs(tokenizer.tokens),
            Preparation::Encoded(tokenizer) => Taken::Texts(tokenizer.tokens),
            Preparation::AsStored => bail!("the form of this network's samples is not known"),
        };
        Ok(Whole { outgoing, form, taken })
    }

    /// Returns samples that fill the graph's inputs, and the logits of every model.
    ///
    /// # Errors
    /// Fails if prediction fails.
    pub fn expected(&self) -> Result<Expected> {
        match self.taken {
            // Images of another size show that resizing is in the file, too.
            Taken::Bytes(side, _) => self.outgoing.expected_of(Some([2 * side, side + side / 2])),
            _ => self.outgoing.expected(),
        }
    }

    /// Writes all models as one file, with `expected.safetensors` beside it, into an existing folder.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(&self, expected: &Expected, folder: &Path) -> Result<()> {
        let network = self.outgoing.session.model.network.written().context("this network has no graph")?;
        let built = build(network, &Leaving::of(self.outgoing), &self.taken, self.form.numbers.kind());
        match self.form.runner {
            Runner::TorchScript => script::write(&built, folder)?,
            Runner::Onnx => onnx::write(&built, &self.described()?, onnx::MOST_INSIDE, folder)?,
        }
        let padded = match self.taken {
            Taken::Texts(tokens) | Taken::Pairs(tokens) | Taken::Questions { tokens, .. } => tokens,
            Taken::Pixels(_) | Taken::Bytes(..) => 0,
        };
        expected.write_all(self.form.prepares, padded, folder)
    }

    /// Returns the entries of a file's metadata.
    fn described(&self) -> Result<Vec<(&'static str, String)>> {
        let (outgoing, model) = (self.outgoing, &self.outgoing.session.model);
        let mut described = vec![
            ("members", json!(outgoing.names).to_string()),
            ("classes", json!(outgoing.session.classes).to_string()),
        ];
        if let Preparation::Images(images) = &model.preparation {
            let preprocessing = Preprocessing::new(images.size(), &outgoing.experiment.checkpoint)?;
            described.push(("preprocessing", serde_json::to_string(&preprocessing)?));
        }
        Ok(described)
    }

    /// Returns the Python that runs the file in `folder` and compares its logits with the expected ones.
    pub fn lines(&self, folder: &Path) -> String {
        let at = folder.display();
        let names = self.taken.names();
        let outputs = "logits, probabilities, mutual_information";
        match self.form.runner {
            Runner::TorchScript => {
                let inputs: Vec<String> = names.iter().map(|name| format!("expected[\"{name}\"]")).collect();
                format!(
                    "import torch\nfrom safetensors.torch import load_file\nmodel = torch.jit.load(\"{at}/{}\")\n\
                     expected = load_file(\"{at}/expected.safetensors\")\nwith torch.no_grad():\n    \
                     {outputs} = model({})\n    \
                     print((logits - expected[\"logits\"]).abs().max() / expected[\"logits\"].abs().max())\n",
                    script::FILE,
                    inputs.join(", ")
                )
            }
            Runner::Onnx => {
                let inputs: Vec<String> =
                    names.iter().map(|name| format!("\"{name}\": expected[\"{name}\"]")).collect();
                format!(
                    "import onnxruntime\nfrom safetensors.numpy import load_file\n\
                     model = onnxruntime.InferenceSession(\"{at}/{}\")\nexpected = load_file(\"{at}/expected.safetensors\")\n\
                     {outputs} = model.run(None, {{{}}})\n\
                     print(abs(logits - expected[\"logits\"]).max() / abs(expected[\"logits\"]).max())\n",
                    onnx::FILE,
                    inputs.join(", ")
                )
            }
        }
    }
}
