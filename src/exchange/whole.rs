//! A whole posterior in one file: what the network takes in; the logits `[members, B, C]` of every model, their mean probabilities
//! `[B, C]` and their mutual information `[B]` out.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tch::{Kind, Tensor};

use crate::base::tensor_file::State;
use crate::exchange::expected::Expected;
use crate::exchange::graph::build;
use crate::exchange::graph::members::{Leaving, Preparing, Taken};
use crate::exchange::modules::Target;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::peft::HeadPlace;
use crate::exchange::{config, onnx, script};
use crate::model::families::{Class, EMBEDDING, Layers, OUTPUT};
use crate::model::folder::Place;
use crate::model::recognition::Package;
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
        let taken = match (model.preparation.images(), form.prepares) {
            (Some(images), true) => {
                let normalize = outgoing.experiment.checkpoint.normalization()?;
                Taken::Bytes(images.size(), Preparing { normalize, interpolation: images.interpolation() })
            }
            (Some(images), false) => Taken::Pixels(images.size()),
            (None, true) => bail!("--preprocess: is for networks of images; this one takes texts: leave it out"),
            (None, false) => {
                let texts = model.preparation.texts();
                Taken::Texts(texts.context("the form of this network's samples is not known")?)
            }
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
        let padded = if let Taken::Texts(texts) = self.taken { texts.tokens } else { 0 };
        expected.write_all(self.form.prepares, padded, folder)
    }

    /// Returns the entries of a file's metadata.
    fn described(&self) -> Result<Vec<(&'static str, String)>> {
        let (outgoing, model) = (self.outgoing, &self.outgoing.session.model);
        let mut described = vec![
            ("members", json!(outgoing.names).to_string()),
            ("classes", json!(outgoing.session.classes).to_string()),
        ];
        if let Some(images) = model.preparation.images() {
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

/// The file that timm, transformers and open_clip look for.
const FILE: [&str; 2] = ["model.safetensors", "open_clip_model.safetensors"];

/// The index of several files.
const INDEX: &str = "model.safetensors.index.json";

/// Writes all tensors in their stored types, into as many files as the checkpoint has.
pub fn write(outgoing: &Outgoing, target: &Target, model: usize, (folder, place): (&Path, &HeadPlace)) -> Result<()> {
    let names = &outgoing.session.names;
    let new = |name: &str| match (name, place) {
        ("head.weight", HeadPlace::Saved(_, head)) => Some(head.weight.shallow_clone()),
        ("head.bias", HeadPlace::Saved(_, head)) => Some(head.bias.shallow_clone()),
        ("position", _) => outgoing.value(model, name).or_else(|| outgoing.session.model.base.get(name).map(to_host)),
        _ => {
            outgoing.value(model, name).or_else(|| outgoing.value(model, outgoing.session.model.base.first_name(name)))
        }
    };
    let added = Added::of(outgoing, target, model, place);
    let stored = Place::of(outgoing.checkpoint())?;
    let mut files = Files { folder, indexed: stored.is_indexed(), map: BTreeMap::new(), bytes: 0 };
    let mut shards = stored.shards().peekable();
    while let Some(shard) = shards.next() {
        let (path, tensors) = shard?;
        let mut state = State::default();
        let mut kind = Kind::Float;
        for (name, old) in tensors {
            let value = names.restored(&name, &old, &new).unwrap_or_else(|| old.shallow_clone());
            kind = old.kind();
            let full = if name.starts_with(added.prefix) { name } else { format!("{}{name}", added.prefix) };
            state.put(&full, &value);
        }
        if shards.peek().is_none() {
            added.tensors.iter().for_each(|(name, value)| state.put(name, &value.to_kind(kind).contiguous()));
        }
        files.write(state, &file_name(path, target))?;
    }
    files.finish()
}

/// Tensors that the checkpoint does not have.
#[derive(Default)]
struct Added {
    tensors: Vec<(String, Tensor)>,
    /// The prefix that all other names get beside them, where the checkpoint is only a part of the class that has them.
    prefix: &'static str,
}

impl Added {
    fn of(outgoing: &Outgoing, target: &Target, model: usize, place: &HeadPlace) -> Added {
        let names = &outgoing.session.names;
        let prefix = target.class.map_or("", |class| class.prefix[0]);
        if let (HeadPlace::Saved(module, head), None) = (place, names.name_of("head.weight")) {
            let tensors = [("weight", &head.weight), ("bias", &head.bias)];
            let tensors = tensors.map(|(part, tensor)| (format!("{module}.{part}"), tensor.contiguous()));
            return Added { tensors: tensors.into(), prefix };
        }
        let output = format!("{OUTPUT}.weight");
        if names.name_of(&output).is_some() || !outgoing.unties(model) {
            return Added::default();
        }
        let embedding = names.name_of(&format!("{EMBEDDING}.weight")).unwrap_or_default().to_string();
        let prefix = if embedding.starts_with("embed") { prefix } else { "" };
        let published = |Class { layers, .. }: &Class| match layers {
            Layers::Named(names) => names.published(&output, &[embedding]),
            Layers::Styles(_) => output.clone(),
        };
        let tensor = target.class.map(published).zip(outgoing.value(model, &output));
        Added { tensors: tensor.into_iter().collect(), prefix }
    }
}

/// Returns the name of a file of weights, as the target's package looks for it.
fn file_name(path: &Path, target: &Target) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match stem.contains("-of-") {
        true => format!("{}.safetensors", stem.replace("pytorch_model", "model")),
        false => FILE[usize::from(target.package == Package::OpenClip)].to_string(),
    }
}

/// Files of weights that are written one by one.
struct Files<'a> {
    folder: &'a Path,
    indexed: bool,
    /// The file of each tensor.
    map: BTreeMap<String, String>,
    /// The size of all tensors in bytes.
    bytes: usize,
}

impl Files<'_> {
    fn write(&mut self, mut state: State, name: &str) -> Result<()> {
        for tensor in state.names() {
            let stored = state.get(&tensor)?;
            self.bytes += stored.numel() * stored.kind().elt_size_in_bytes();
            self.map.insert(tensor, name.to_string());
        }
        state.describe("format", "pt".to_string());
        state.write(&self.folder.join(name))
    }

    /// Writes the index, if there is to be one.
    fn finish(self) -> Result<()> {
        if !self.indexed {
            return Ok(());
        }
        let index = json!({ "metadata": { "total_size": self.bytes }, "weight_map": self.map });
        config::write(&self.folder.join(INDEX), &index)
    }
}

fn to_host(tensor: &Tensor) -> Tensor {
    tensor.to_device(tch::Device::Cpu)
}
