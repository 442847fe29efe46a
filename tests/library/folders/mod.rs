//! Checkpoints as folders: the smallest random network of every family, saved by the package that publishes it, gives that
//! package's features and logits (tests/fixtures/folders, written by scripts/make_folder_fixtures.py).

mod networks;
mod preparation;
mod refusals;

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{Place, alike, assert_has, done, error_line, fixture, printed};
use bella::data::fields::{Fields, PIXELS};
use bella::experiment::Experiment;
use bella::model::folder;
use bella::model::network::low_rank::LowRank;
use bella::model::network::{Network, Parameters, Weights};
use bella::model::recognition::identify::{Evidence, Fixed, Identified};
use bella::model::vit::forward::Vit;
use bella::schema::Tree;
use tch::{Kind, Tensor};

/// Returns the name of every family: that of its folder of fixtures.
fn families() -> Vec<String> {
    let entries = std::fs::read_dir(fixture("folders")).unwrap();
    let mut all: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    assert!(all.len() >= 37, "{all:?}");
    all
}

fn family(name: &str) -> PathBuf {
    fixture("folders").join(name)
}

/// The settings of a test besides the folder: open_clip's configs of timm's towers name an architecture, and the small ones here
/// have other heads than the published ones.
fn fixed(name: &str) -> Fixed {
    let is_small = ["open-clip-eva02", "open-clip-siglip", "open-clip-timm", "open-clip-timm-root"].contains(&name);
    Fixed { heads: is_small.then_some(2), ..Fixed::default() }
}

/// A tensor of a family's reference.
fn reference(name: &str, tensor: &str) -> Option<Tensor> {
    let tensors = Tensor::read_safetensors(family(name).join("reference.safetensors")).unwrap();
    tensors.into_iter().find(|(known, _)| known == tensor).map(|(_, t)| t)
}

/// Eight lines: what a user writes who has downloaded a folder.
fn config(place: &Place, name: &str, more: &str) -> PathBuf {
    place.write("x.toml", experiment(name, more).as_bytes())
}

fn experiment(name: &str, more: &str) -> String {
    format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint.path = {:?}\nhead.linear = {{}}\ndata.digits.subset = {{ train = 24, test = 20 }}\n\
         optimizer.adamw.lr = 1e-3\ntrain = {{ epochs = 1, batch_size = 8 }}\n{more}\n",
        family(name)
    )
}

fn train(place: &Place, config: &Path, sets: &[&str]) -> crate::common::Bella {
    let mut command = place.command("train", sets);
    command.arg("--config").arg(config);
    command
}

/// A copy of a folder, changed.
fn changed(place: &Place, name: &str, change: impl Fn(&Path)) -> PathBuf {
    let copy = place.path("copy");
    let _ = std::fs::remove_dir_all(&copy);
    std::fs::create_dir_all(&copy).unwrap();
    for file in std::fs::read_dir(family(name)).unwrap().flatten() {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    change(&copy);
    copy
}

fn text(folder: &Path, name: &str, from: &str, to: &str) {
    let path = folder.join(name);
    let old = std::fs::read_to_string(&path).unwrap();
    assert!(old.contains(from), "{old}");
    std::fs::write(path, old.replace(from, to)).unwrap();
}
