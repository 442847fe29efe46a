//! A few tiny commands, and what they leave when nothing goes wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{self, Place};

/// A command with the experiment that it works on.
pub struct Scenario {
    pub name: &'static str,
    /// The tables that replace the method of the tiny experiment.
    method: &'static str,
    sets: &'static [&'static str],
    /// A command on the trained run, if it is not the training that is tortured.
    then: Option<&'static [&'static str]>,
}

/// Saves after every step, so that there is much to interrupt.
const OFTEN: &str = "train.save_minutes=1e-9";

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "svgd", method: SVGD, sets: &[OFTEN], then: None },
    Scenario {
        name: "prefix cache on disk",
        method: SVGD,
        sets: &[OFTEN, "subspace.low-rank.blocks=\"2-3\"", "train.prefix_cache=\"disk\"", "train.epochs=1"],
        then: None,
    },
    Scenario {
        name: "attack",
        method: SVGD,
        sets: &[],
        then: Some(&["eval", "--attack", "fgsm", "--epsilon", "0.01"]),
    },
    Scenario { name: "laplace", method: LAPLACE, sets: &["train.epochs=1"], then: None },
    Scenario { name: "ivon", method: IVON, sets: &[OFTEN, "train.epochs=1"], then: None },
    Scenario { name: "soup", method: SVGD, sets: &[], then: Some(&["soup"]) },
];

const SVGD: &str = "[method.svgd]\nparticles = 2\ngamma = 0.01\n\n[optimizer.adamw]\nlr = 2e-3\n";
const LAPLACE: &str = "[method.laplace]\nsamples = 4\n\n[optimizer.adamw]\nlr = 2e-3\n";
const IVON: &str = "[method.ivon]\nlr = 0.03\ness = 40\nhess_init = 1e-2\n\n[optimizer.none]\n";

/// The columns of result rows that are measured anew each time.
const COSTS: [&str; 5] = [
    "train_wall_seconds",
    "train_processor_seconds",
    "train_images_per_second",
    "predict_images_per_second",
    "memory_bytes",
];

impl Scenario {
    /// A folder with the experiment and, for a command on a run, the run.
    pub fn prepare(&self) -> Place {
        let place = Place::new();
        let tiny = common::tiny();
        let (start, rest) = (tiny.find("[method.svgd]").unwrap(), tiny.find("[train]").unwrap());
        let config = format!("{}{}\n{}", &tiny[..start], self.method, &tiny[rest..]);
        place.write("tiny.toml", config.as_bytes());
        if self.then.is_some() {
            finished(&self.train(&place).output().unwrap(), "preparing");
        }
        place
    }

    /// The command that is tortured.
    pub fn command(&self, place: &Place) -> Command {
        let Some(words) = self.then else { return self.train(place) };
        let mut command = bella(&place.arguments(words[0], &[]));
        command.args(&words[1..]);
        command
    }

    fn train(&self, place: &Place) -> Command {
        let mut command = bella(&place.arguments("train", self.sets));
        command.arg("--config").arg(place.path("tiny.toml"));
        command
    }
}

fn bella(arguments: &[String]) -> Command {
    let program = std::env::var_os("TORTURE_BELLA").unwrap_or_else(|| env!("CARGO_BIN_EXE_bella").into());
    let mut command = Command::new(program);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments);
    command
}

#[track_caller]
pub fn finished(output: &Output, what: &str) {
    assert_eq!(output.status.code(), Some(0), "{what}: {}", common::messages(output));
}

/// The content of a results folder, without the values that differ from run to run.
#[derive(Debug, PartialEq)]
pub struct Contents {
    /// The rows of every CSV file beside the runs, sorted.
    rows: BTreeMap<String, Vec<BTreeMap<String, String>>>,
    /// The tensors of every file that evaluations need, as bytes.
    tensors: BTreeMap<String, Vec<u8>>,
    /// The names of all other files.
    files: Vec<String>,
}

impl Contents {
    pub fn of(place: &Place) -> Contents {
        let results = place.path("results");
        let mut contents = Contents { rows: BTreeMap::new(), tensors: BTreeMap::new(), files: Vec::new() };
        for path in files(&results) {
            let name = path.strip_prefix(&results).unwrap().display().to_string();
            if name.ends_with(".csv") && !name.contains("runs/") {
                contents.rows.insert(name, rows(&path));
            } else if name.ends_with(".safetensors") && !name.contains("resume") {
                contents.tensors.extend(tensors(&path).map(|(tensor, bytes)| (format!("{name}: {tensor}"), bytes)));
            } else {
                contents.files.push(name);
            }
        }
        contents
    }

    /// The first difference from `expected`, in a line; `None` if there is none.
    pub fn difference(&self, expected: &Contents) -> Option<String> {
        if self.rows != expected.rows {
            return Some(format!("rows {:?}\ninstead of {:?}", self.rows, expected.rows));
        }
        let names = |contents: &Contents| contents.tensors.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(expected) {
            return Some(format!("tensors {:?}\ninstead of {:?}", names(self), names(expected)));
        }
        let differs = |(name, bytes): &(&String, &Vec<u8>)| expected.tensors.get(*name) != Some(*bytes);
        if let Some((name, _)) = self.tensors.iter().find(differs) {
            return Some(format!("other bits in {name}"));
        }
        (self.files != expected.files).then(|| format!("files {:?}\ninstead of {:?}", self.files, expected.files))
    }
}

/// All files below a folder, sorted.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let table = bella::results::store::read(path).unwrap();
    let is_cost = |column: &str| COSTS.iter().any(|cost| column.ends_with(cost));
    let row = |cells: &Vec<String>| {
        let cells = table.columns.iter().cloned().zip(cells.iter().cloned());
        cells.filter(|(column, _)| !is_cost(column)).collect::<BTreeMap<_, _>>()
    };
    let mut rows: Vec<_> = table.rows.iter().map(row).collect();
    rows.sort();
    rows
}

fn tensors(path: &Path) -> impl Iterator<Item = (String, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let all: Vec<_> = tensors.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect();
    // Texts hold the time of writing.
    all.into_iter().filter(|(name, _)| !name.starts_with("text"))
}
