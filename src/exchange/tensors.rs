//! The files of weights of a whole model: those of the checkpoint again, tensor by tensor, with merged weights.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::json;
use tch::{Kind, Tensor};

use super::config;
use super::outgoing::Outgoing;
use super::peft::HeadPlace;
use super::target::Target;
use crate::base::tensor_file::State;
use crate::model::families::{Class, EMBEDDING, Layers, OUTPUT};
use crate::model::folder::Place;
use crate::model::recognition::Package;

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
