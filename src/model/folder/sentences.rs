//! Reads what sentence-transformers makes of the hidden states of a text encoder: `modules.json` lists the modules that follow each other, and
//! the folder of each has its `config.json` (version 6.2, and the keys of earlier ones).

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::base::files::read_json;
use crate::hub::{MODULES, PROMPTS, SENTENCES};
use crate::model::families::encoders::Features;

/// The settings that a folder holds for sentence-transformers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentences {
    /// The features of a text, or why bella does not compute them.
    pub encoded: Result<Encoded, String>,
    /// The most tokens of a text, if the folder says it.
    pub tokens: Option<i64>,
}

/// The features of a text as `SentenceTransformer.encode` gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub features: Features,
    /// Whether they are divided by their L2 norm.
    pub is_unit: bool,
}

/// One module: its type, and its folder.
struct Module {
    kind: String,
    folder: PathBuf,
}

impl Module {
    /// Returns the name of its class; the whole type where that is none of the package's own.
    fn name(&self) -> &str {
        let own = self.kind.strip_prefix("sentence_transformers.").and_then(|class| class.rsplit('.').next());
        own.unwrap_or(&self.kind)
    }
}

/// The list of modules of which a network is the first.
struct List {
    /// The folder of the list.
    root: PathBuf,
    modules: Vec<Module>,
}

/// The way out for features that bella does not compute.
const WAY: &str = "bella computes \"cls\" and \"mean\", with or without Normalize behind them: set checkpoint.features to read the hidden states \
                   in another way than this folder says";

/// The task of a network whose classifier is read as that of any other folder.
const CLASSIFIES: &str = "sequence-classification";

impl Sentences {
    /// Reads what the folder of a network says, or the folder around it where that names it as its first module; `None` where neither has a
    /// `modules.json`, and for a network that classifies.
    ///
    /// # Errors
    /// Fails if a file is missing or damaged.
    pub fn of(network: &Path) -> Result<Option<Sentences>> {
        let Some(list) = List::of(network)? else { return Ok(None) };
        let file = limits(network).unwrap_or_default();
        let settings = if file.is_file() { read_json(&file)? } else { Value::Null };
        if list.modules.len() == 1 && settings.get("transformer_task").and_then(Value::as_str) == Some(CLASSIFIES) {
            return Ok(None);
        }
        let tokens = match settings.get("max_seq_length").filter(|tokens| !tokens.is_null()) {
            None => None,
            Some(said) => Some(said.as_i64().filter(|tokens| *tokens > 0).with_context(|| {
                format!("{}: max_seq_length = {said}: must be a number of tokens from 1 on, or null", file.display())
            })?),
        };
        let lowers = settings.get("do_lower_case").and_then(Value::as_bool) == Some(true);
        let encoded = match list.prompt()? {
            _ if lowers => Err(format!(
                "{}: do_lower_case = true: makes texts lower case before the tokenizer does, which bella does not do: {WAY}",
                file.display()
            )),
            Some(why) => Err(why),
            None => list.encoded()?,
        };
        Ok(Some(Sentences { encoded, tokens }))
    }
}

impl List {
    /// Finds the list of which a network is the first module.
    fn of(network: &Path) -> Result<Option<List>> {
        for root in [Some(network), network.parent()].into_iter().flatten() {
            let file = root.join(MODULES);
            if !file.is_file() {
                continue;
            }
            let modules = modules(root, &file)?;
            if modules.first().is_some_and(|first| first.folder == network) {
                return Ok(Some(List { root: root.to_path_buf(), modules }));
            }
        }
        Ok(None)
    }

    /// Returns the configs of the modules that have one in a folder of their own.
    fn configs(&self) -> impl Iterator<Item = PathBuf> {
        self.modules[1..].iter().map(|module| module.folder.join("config.json")).filter(|config| config.is_file())
    }

    /// Returns why a prompt in front of every text is not computed, if there is one.
    fn prompt(&self) -> Result<Option<String>> {
        let file = self.root.join(PROMPTS);
        if !file.is_file() {
            return Ok(None);
        }
        let json = read_json(&file)?;
        let name = json.get("default_prompt_name").and_then(Value::as_str);
        let prompt = name.map(|name| (name, json.get("prompts").and_then(|all| all.get(name))));
        Ok(prompt.filter(|(_, prompt)| prompt.and_then(Value::as_str) != Some("")).map(|(name, _)| {
            format!(
                "{}: default_prompt_name = \"{name}\": puts a prompt in front of every text, which bella does not do: {WAY}",
                file.display()
            )
        }))
    }

    /// Reads the modules behind the network.
    fn encoded(&self) -> Result<Result<Encoded, String>> {
        let names: Vec<&str> = self.modules.iter().map(Module::name).collect();
        let behind: Vec<&Module> = self.modules[1..].iter().filter(|module| module.name() != "Dropout").collect();
        let kinds: Vec<&str> = behind.iter().map(|module| module.name()).collect();
        let is_unit = match (names[0], &kinds[..]) {
            ("Transformer", ["Pooling"]) => false,
            ("Transformer", ["Pooling", "Normalize"]) => true,
            _ => {
                let known = ["Transformer", "Pooling", "Normalize"];
                let mut all = std::iter::once(names[0]).chain(kinds).enumerate();
                let other = all.find(|(at, kind)| known.get(*at) != Some(kind));
                let what = other.map_or("no Pooling".to_string(), |(_, kind)| format!("the module {kind}"));
                return Ok(Err(format!(
                    "{}: {what} gives features in a way that bella does not compute: {WAY}",
                    self.root.join(MODULES).display()
                )));
            }
        };
        Ok(pooling(&behind[0].folder.join("config.json"))?.map(|features| Encoded { features, is_unit }))
    }
}

/// Returns the file that limits the length of texts, if the folder of the network has one.
fn limits(network: &Path) -> Option<PathBuf> {
    SENTENCES.iter().map(|name| network.join(name)).find(|file| file.is_file())
}

/// Returns the files that decide beside the config and the tokenizer of a network how sentence-transformers reads texts by it: none where no
/// list of modules names it.
pub fn files(network: &Path) -> Vec<PathBuf> {
    let lists = [Some(network), network.parent()].into_iter().flatten();
    match List::of(network) {
        Ok(None) => Vec::new(),
        Ok(Some(list)) => {
            let named = [MODULES, PROMPTS].map(|name| list.root.join(name)).into_iter().filter(|file| file.is_file());
            named.chain(limits(network)).chain(list.configs()).collect()
        }
        // A list that is damaged is a content, too.
        Err(_) => lists.map(|root| root.join(MODULES)).filter(|file| file.is_file()).collect(),
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
        let kind = text("type")?.to_string();
        let path = text("path")?;
        let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let folder = if path.is_empty() { root.to_path_buf() } else { root.join(path) };
        is_inside.then_some(Module { kind, folder })
    };
    let all: Option<Vec<Module>> = json.as_array().with_context(wrong)?.iter().map(one).collect();
    all.with_context(wrong)
}

/// Returns the features that the config of a Pooling asks for, or why they are not computed.
fn pooling(file: &Path) -> Result<Result<Features, String>> {
    let (shown, json) = (file.display(), read_json(file).with_context(|| format!("{MODULES} names its folder"))?);
    let words: Vec<&str> = match json.get("pooling_mode") {
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(all)) => {
            let words: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
            words.with_context(|| format!("{shown}: pooling_mode: must be a word or a list of words"))?
        }
        _ => {
            let all = json.as_object().into_iter().flatten();
            let set = all.filter(|(key, value)| key.starts_with("pooling_mode_") && value.as_bool() == Some(true));
            set.map(|(key, _)| key.trim_start_matches("pooling_mode_").trim_end_matches("_tokens")).collect()
        }
    };
    let features = match words[..] {
        ["cls" | "cls_token"] => Features::First,
        // The package takes the mean where its config names no mode.
        ["mean"] | [] => Features::Mean,
        _ => {
            return Ok(Err(format!("{shown}: its pooling is {}: {WAY}", words.join(" + "))));
        }
    };
    if json.get("include_prompt").and_then(Value::as_bool) == Some(false) {
        return Ok(Err(format!(
            "{shown}: include_prompt = false: leaves the tokens of a prompt out of the pooling, which bella does not do: {WAY}"
        )));
    }
    Ok(Ok(features))
}

/// Copies what sentence-transformers reads beside a network into the folder of another one, if the network's folder states the features of the
/// other one; otherwise the copy gets no list of modules.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub fn copy(network: &Path, to: &Path, features: Option<Features>, is_unit: bool) -> Result<()> {
    let Ok(Some(list)) = List::of(network) else { return Ok(()) };
    let said = Sentences::of(network).ok().flatten().and_then(|said| said.encoded.ok());
    let is_same = said.is_some_and(|said| Some(said.features) == features && said.is_unit == is_unit);
    if !is_same || list.root != network {
        tracing::info!(
            "{}: has no {MODULES}, since {}: SentenceTransformer would read its texts in another way",
            to.display(),
            if is_same { "the network lies in a folder of its own" } else { "the checkpoint's is for other features" }
        );
        let copied = to.join(MODULES);
        return if copied.is_file() { Ok(fs::remove_file(copied)?) } else { Ok(()) };
    }
    for config in list.configs() {
        let target = to.join(config.strip_prefix(network)?);
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::copy(&config, target)?;
    }
    Ok(())
}
