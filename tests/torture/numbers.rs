//! Numbers at the edges of their ranges, in configs and in the files of networks: each is trained with, or refused in a line.

use std::fs;
use std::path::{Path, PathBuf};

use bella::experiment::{Experiment, load_config};
use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use serde_json::Value as Json;
use toml::Value as Toml;

use crate::bounded::{bella, campaign, ended};
use crate::common::{Place, fixture, repository, tiny};
use crate::reference::files;
use crate::{random, variable};

/// What replaces a number, in words that TOML and JSON as Python writes it share but for infinities.
const EDGES: [&str; 24] = [
    "0",
    "-0.0",
    "-1",
    "1",
    "2",
    "3",
    "1000",
    "65536",
    "1000000000",
    "2147483647",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "1e-320",
    "1e-30",
    "0.5",
    "1.5",
    "1e9",
    "1e30",
    "1e308",
    "NAN",
    "INF",
];

/// Stands for the text of a number until the file is written.
const MARK: &str = "@number@";

#[test]
fn numbers_at_their_edges_are_computed_with_or_refused() {
    let count = variable("TORTURE_NUMBERS", 16);
    if count == 0 {
        return;
    }
    let place = Place::new();
    let (configs, folders) = (configs(), folders());
    campaign("numbers", count, |number| {
        let mut random = random(8, number);
        let edge = EDGES[random.random_range(0..EDGES.len())];
        let _ = fs::remove_dir_all(place.path("case"));
        if random.random_range(0..5) < 3 {
            let (name, config) = &configs[random.random_range(0..configs.len())];
            let (key, text) = edited_toml(config, edge, &mut random);
            place.write("case/x.toml", text.as_bytes());
            ("config".to_string(), format!("{name}: {key} = {edge}"), trained(&place))
        } else {
            let folder = &folders[random.random_range(0..folders.len())];
            let (key, outcome) = in_folder(&place, folder, edge, &mut random);
            ("folder".to_string(), format!("{}: {key} = {edge}", folder.display()), outcome)
        }
    });
}

/// The resolved configs of every method on a tiny network: every key with its value.
fn configs() -> Vec<(String, toml::Table)> {
    let (text, place) = (tiny(), Place::new());
    let (subspace, method) = (text.find("[subspace").unwrap(), text.find("[method").unwrap());
    let rest = &text[text.find("[train]").unwrap()..];
    // A method's own config may have another subspace.
    let bases = [("low-rank.toml", method), ("bare.toml", subspace)];
    let bases = bases.map(|(name, end)| place.write(name, format!("{}{rest}", &text[..end]).as_bytes()));
    let mut found = vec![("tiny".to_string(), resolved(&[place.write("tiny.toml", text.as_bytes())]).unwrap())];
    for path in files(&repository("configs/methods")) {
        let config = bases.iter().find_map(|base| resolved(&[base.clone(), path.clone()]));
        // Those for networks of another kind are left out.
        found.extend(config.map(|config| (path.file_stem().unwrap().display().to_string(), config)));
    }
    assert!(found.len() > 20, "only {} methods", found.len());
    found
}

fn resolved(files: &[PathBuf]) -> Option<toml::Table> {
    Some(Experiment::read(&load_config(files, &[]).ok()?).ok()?.resolved())
}

/// A config with one number replaced, and the key of that number.
fn edited_toml(config: &toml::Table, edge: &str, random: &mut ChaCha12Rng) -> (String, String) {
    let mut config = Toml::Table(config.clone());
    let mut keys = Vec::new();
    toml_numbers(&config, String::new(), &mut keys);
    let key = keys.swap_remove(random.random_range(0..keys.len()));
    let mut at = &mut config;
    for part in key.split('/').skip(1) {
        at = match at {
            Toml::Table(table) => table.get_mut(part).unwrap(),
            Toml::Array(list) => &mut list[part.parse::<usize>().unwrap()],
            _ => unreachable!("{key}"),
        };
    }
    *at = Toml::String(MARK.into());
    let edge = match edge {
        "NAN" => "nan",
        "INF" => "inf",
        edge => edge,
    };
    (key, toml::to_string(&config).unwrap().replace(&format!("\"{MARK}\""), edge))
}

/// The paths of all numbers of a config.
fn toml_numbers(value: &Toml, path: String, keys: &mut Vec<String>) {
    match value {
        Toml::Table(table) => {
            table.iter().for_each(|(key, inner)| toml_numbers(inner, format!("{path}/{key}"), keys));
        }
        Toml::Array(list) => {
            list.iter().enumerate().for_each(|(at, inner)| toml_numbers(inner, format!("{path}/{at}"), keys));
        }
        Toml::Integer(_) | Toml::Float(_) => keys.push(path),
        _ => {}
    }
}

/// Checks the config, and trains the first epoch if nothing is wrong with it.
fn trained(place: &Place) -> Result<(), String> {
    let (config, out) = (place.path("case/x.toml"), place.path("case/results"));
    let (config, out) = (config.to_str().unwrap(), out.to_str().unwrap());
    let compute = ["--device", "cpu", "--threads", "1", "--workers", "1", "--memory", "1"];
    let checked = ended(bella(&[&["check", config, "--deep"], &compute[..]].concat()), None)?;
    if checked.code != 0 {
        return Ok(());
    }
    let words = ["train", "--config", config, "--out", out, "--until-epoch", "1"];
    let ended = ended(bella(&[&words, &compute[..]].concat()), None)?;
    for path in files(Path::new(out)).iter().filter(|path| path.extension().is_some_and(|kind| kind == "safetensors")) {
        if let Some(name) = infinite(path) {
            return Err(format!("{}: {name} is not finite; exit code {}: {}", path.display(), ended.code, ended.said));
        }
    }
    Ok(())
}

/// The name of a tensor of f32 with a value that is not finite.
fn infinite(path: &Path) -> Option<String> {
    let bytes = fs::read(path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let is_infinite =
        |data: &[u8]| data.chunks_exact(4).any(|four| !f32::from_le_bytes(four.try_into().unwrap()).is_finite());
    tensors
        .tensors()
        .into_iter()
        .find(|(_, view)| view.dtype() == safetensors::Dtype::F32 && is_infinite(view.data()))
        .map(|(name, _)| name)
}

/// The folders of networks.
fn folders() -> Vec<PathBuf> {
    let inside = |name: &str| {
        let mut found: Vec<PathBuf> = fs::read_dir(fixture(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    ["folders", "language", "llava"]
        .into_iter()
        .flat_map(inside)
        .filter(|path| path.join("config.json").exists() || path.join("open_clip_config.json").exists())
        .collect()
}

/// Replaces a number in a JSON file of a folder, and has bella look at the folder.
fn in_folder(place: &Place, folder: &Path, edge: &str, random: &mut ChaCha12Rng) -> (String, Result<(), String>) {
    let mut texts = Vec::new();
    for file in files(folder) {
        let name = file.file_name().unwrap().to_str().unwrap();
        if name == "reference.safetensors" {
            continue;
        }
        let copy = place.write(&format!("case/{name}"), &fs::read(&file).unwrap());
        if name.ends_with(".json") && name != "prompts.json" {
            texts.push(copy);
        }
    }
    // The config decides most.
    let is_config =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.display().to_string().ends_with("config.json"));
    let configs: Vec<&PathBuf> = texts.iter().filter(is_config).collect();
    let file = if random.random_range(0..3) > 0 {
        configs[random.random_range(0..configs.len())]
    } else {
        &texts[random.random_range(0..texts.len())]
    };
    let json: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let mut keys = Vec::new();
    json_numbers(&json, String::new(), &mut keys);
    let name = file.file_name().unwrap().display().to_string();
    if keys.is_empty() {
        return (name, Ok(()));
    }
    let key = keys.swap_remove(random.random_range(0..keys.len()));
    let mut edited = json;
    *edited.pointer_mut(&key).unwrap() = Json::String(MARK.into());
    let edge = match edge {
        "NAN" => "NaN",
        "INF" => "Infinity",
        edge => edge,
    };
    fs::write(file, edited.to_string().replace(&format!("\"{MARK}\""), edge)).unwrap();
    let target = place.path("case");
    let inspected = ended(bella(&["inspect", target.to_str().unwrap()]), None);
    (format!("{name}{key}"), inspected.map(drop))
}

/// The JSON pointers of all numbers.
fn json_numbers(value: &Json, path: String, keys: &mut Vec<String>) {
    match value {
        Json::Object(table) => table.iter().for_each(|(key, inner)| {
            json_numbers(inner, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), keys);
        }),
        Json::Array(list) => {
            list.iter().enumerate().for_each(|(at, inner)| json_numbers(inner, format!("{path}/{at}"), keys));
        }
        Json::Number(_) => keys.push(path),
        _ => {}
    }
}
