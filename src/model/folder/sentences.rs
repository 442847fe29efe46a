//! Reads what sentence-transformers makes of the hidden states of a text encoder: `modules.json` lists the modules that follow each other, and
//! the folder of each has its `config.json` (version 6.2, and the keys of earlier ones).

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::base::files::read_json;
use crate::hub::{MODULES, SENTENCES};
use crate::model::families::encoders::Features;

/// The features of a text as sentence-transformers computes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentences {
    pub features: Features,
    /// Whether they are divided by their L2 norm.
    pub is_unit: bool,
    /// The most tokens of a text, if the folder says it.
    pub tokens: Option<i64>,
}

/// One module: the last word of its type, and its folder.
struct Module {
    kind: String,
    folder: PathBuf,
}

/// The way out for features that bella does not compute.
const WAY: &str = "bella computes \"cls\" and \"mean\", with or without Normalize behind them: set checkpoint.features to read the hidden states \
                   in another way than this folder says";

impl Sentences {
    /// Reads what the folder of a network says, or the folder around it where that names it as its first module; `None` where neither has a
    /// `modules.json`.
    ///
    /// # Errors
    /// Fails if a file is damaged, or if features are asked for that bella does not compute.
    pub fn of(network: &Path) -> Result<Option<Sentences>> {
        for root in [Some(network), network.parent()].into_iter().flatten() {
            let list = root.join(MODULES);
            if !list.is_file() {
                continue;
            }
            let modules = modules(root, &list)?;
            if modules.first().is_some_and(|first| first.folder == network) {
                return read(&list, &modules).map(Some);
            }
        }
        Ok(None)
    }
}

/// Returns the modules that a list names.
fn modules(root: &Path, list: &Path) -> Result<Vec<Module>> {
    let wrong = || {
        format!(
            "{}: must be a list of modules, each with a `type` and the `path` of a folder in this one",
            list.display()
        )
    };
    let json = read_json(list)?;
    let one = |module: &Value| {
        let text = |key: &str| module.get(key)?.as_str();
        let kind = text("type")?.rsplit('.').next()?.to_string();
        let path = text("path")?;
        let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let folder = if path.is_empty() { root.to_path_buf() } else { root.join(path) };
        is_inside.then_some(Module { kind, folder })
    };
    let all: Option<Vec<Module>> = json.as_array().with_context(wrong)?.iter().map(one).collect();
    all.with_context(wrong)
}

/// Reads the modules behind the network.
fn read(list: &Path, modules: &[Module]) -> Result<Sentences> {
    let shown = list.display();
    let behind: Vec<&Module> = modules[1..].iter().filter(|module| module.kind != "Dropout").collect();
    let kinds: Vec<&str> = behind.iter().map(|module| module.kind.as_str()).collect();
    let is_unit = match kinds[..] {
        ["Pooling"] => false,
        ["Pooling", "Normalize"] => true,
        _ => {
            let known = ["Pooling", "Normalize"];
            let other = kinds.iter().enumerate().find(|(at, kind)| known.get(*at) != Some(kind));
            let what = other.map_or("no Pooling".to_string(), |(_, kind)| format!("the module {kind}"));
            anyhow::bail!(
                "{shown}: {what} behind the network changes features in a way that bella does not compute: {WAY}"
            )
        }
    };
    let features = pooling(&behind[0].folder.join("config.json"))?;
    let limits = modules[0].folder.join(SENTENCES);
    let limits = if limits.is_file() { read_json(&limits)? } else { Value::Null };
    let tokens = limits.get("max_seq_length").and_then(Value::as_i64).filter(|tokens| *tokens > 0);
    Ok(Sentences { features, is_unit, tokens })
}

/// Returns the features that the config of a Pooling asks for.
fn pooling(file: &Path) -> Result<Features> {
    let (shown, json) = (file.display(), read_json(file).with_context(|| format!("{MODULES} names its folder"))?);
    let words: Vec<&str> = match json.get("pooling_mode") {
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => {
            let all = json.as_object().into_iter().flatten();
            let set = all.filter(|(key, value)| key.starts_with("pooling_mode_") && value.as_bool() == Some(true));
            set.map(|(key, _)| key.trim_start_matches("pooling_mode_").trim_end_matches("_tokens")).collect()
        }
    };
    let features = match words[..] {
        ["cls" | "cls_token"] => Features::First,
        ["mean"] => Features::Mean,
        _ => {
            let word = if words.is_empty() { "none".to_string() } else { words.join(" + ") };
            anyhow::bail!("{shown}: its pooling is {word}: {WAY}")
        }
    };
    ensure!(
        json.get("include_prompt").and_then(Value::as_bool) != Some(false),
        "{shown}: include_prompt = false: leaves the tokens of a prompt out of the pooling, which bella does not do: {WAY}"
    );
    Ok(features)
}

/// Copies what sentence-transformers reads beside a network into the folder of another one that has these features; where the folder states
/// others, the copy gets no list of modules.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub fn copy(network: &Path, to: &Path, features: Option<Features>) -> Result<()> {
    let list = network.join(MODULES);
    if !list.is_file() {
        return Ok(());
    }
    let said = Sentences::of(network).ok().flatten().map(|said| said.features);
    if said.is_none() || said != features {
        let copied = to.join(MODULES);
        return if copied.is_file() { Ok(fs::remove_file(copied)?) } else { Ok(()) };
    }
    for Module { folder, .. } in modules(network, &list)?.iter().filter(|module| module.folder != network) {
        let config = folder.join("config.json");
        if config.is_file() {
            let target = to.join(folder.strip_prefix(network)?);
            fs::create_dir_all(&target)?;
            fs::copy(&config, target.join("config.json"))?;
        }
    }
    Ok(())
}
