//! Models leave as adapters, whole folders and programs, and come in again. What the packages themselves make of them is compared by
//! scripts/compare_exports.py.

mod adapters;
mod beside;
mod programs;
mod whole;

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{Place, alike, assert_has, done, error_line, fixture, printed, tensor, tensors};
use bella::data::Sizes;
use bella::data::fields::{Fields, PIXELS};
use bella::model::folder;
use bella::model::network::{Network, Weights};
use bella::model::recognition::identify::Fixed;
use serde_json::{Value, json};
use tch::{Kind, Tensor};

const ALL_LAYERS: &str =
    "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }";

fn family(name: &str) -> PathBuf {
    fixture("folders").join(name)
}

/// An experiment on a small folder, with `head` and further tables.
fn config(place: &Place, name: &str, more: &str) -> PathBuf {
    let text = format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint = {{ path = {:?}, normalize = \"imagenet\" }}\nhead.linear = {{}}\n\
         data.digits.subset = {{ train = 24, test = 20 }}\noptimizer.adamw.lr = 1e-2\n\
         train = {{ epochs = 2, batch_size = 8 }}\n{more}\n",
        family(name)
    );
    place.write("x.toml", text.as_bytes())
}

/// Trains two particles; the run's folder.
fn train(place: &Place, name: &str, more: &str) -> PathBuf {
    let config = config(place, name, &format!("{more}\nmethod.svgd = {{ particles = 2, gamma = 0.01 }}"));
    let mut command = place.command("train", &[]);
    command.arg("--config").arg(config);
    done(command);
    place.run()
}

fn export(place: &Place, run: &Path, output: &str, more: &[&str]) -> crate::common::Bella {
    let mut command = place.command("export", &[]);
    command.arg(run).arg("--output").arg(place.path(output)).args(more);
    command
}

/// Imports folders into results of their own; the new run's folder.
fn import(place: &Place, folders: &[PathBuf], more: &[&str]) -> PathBuf {
    let output = importing(place, folders, more).output().unwrap();
    assert!(output.status.success(), "{}", common::messages(&output));
    PathBuf::from(printed(&output).trim())
}

fn importing(place: &Place, folders: &[PathBuf], more: &[&str]) -> crate::common::Bella {
    let mut command = common::bella(&["import", "--device", "cpu", "--threads", "1"]);
    command.arg("--out").arg(place.path("imported")).arg("--config").arg(place.path("x.toml")).args(folders).args(more);
    command
}

fn metadata(path: &Path) -> std::collections::HashMap<String, String> {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    header.metadata().clone().unwrap()
}

/// The logits that bella's own network computes with the weights in `folder`.
fn logits(folder: &Path, pixels: &Tensor, head: (&Tensor, &Tensor)) -> Tensor {
    let found = folder::identify(folder, &Fixed::default()).unwrap_or_else(|e| panic!("{e:#}"));
    let images = Fields::of(PIXELS, pixels.unsqueeze(0));
    let features = tch::no_grad(|| found.vit.forward(&Weights::frozen(&found.base), &images));
    features.squeeze_dim(0).linear(head.0, Some(head.1))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// The outputs of an archive: logits, mean probabilities and mutual information.
fn outputs(archive: &Path, input: &Tensor) -> [Tensor; 3] {
    let module = tch::CModule::load(archive).unwrap();
    let output = module.method_is("forward", &[tch::IValue::Tensor(input.shallow_clone())]).unwrap();
    let tch::IValue::Tuple(parts) = output else { panic!("no tuple") };
    let parts: Vec<Tensor> = parts.into_iter().map(|part| Tensor::try_from(part).unwrap()).collect();
    parts.try_into().unwrap()
}
