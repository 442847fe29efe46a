//! The configurations that the card of a repository (`README.md`) names in the metadata at its top, as Python's `datasets` reads them.

use anyhow::{Context, Result, bail, ensure};

use super::yaml::{self, Node};

/// The entry of the metadata that names the configurations.
const CONFIGS: &str = "configs";

/// The split of files whose split is not said.
const ALL: &str = "train";

/// The files of a split.
#[derive(Debug, PartialEq)]
pub struct Files {
    pub split: String,
    pub patterns: Vec<String>,
}

/// A configuration of a card.
#[derive(Debug, PartialEq)]
pub struct Config {
    pub name: String,
    pub is_default: bool,
    /// The folder below the root in which the files lie, which is the root if it is empty.
    pub folder: String,
    /// The files by split; `None` if their names say the split.
    pub files: Option<Vec<Files>>,
}

/// Returns the configurations of a card, of which there are none if it has no metadata, or none of this kind.
///
/// # Errors
/// Fails with the rest of a sentence about the card if `datasets` would refuse it.
pub fn configs(card: &str) -> Result<Vec<Config>> {
    let Some(head) = metadata(card) else { return Ok(Vec::new()) };
    // What is wrong with other entries is no matter of the tables.
    if !head.lines().any(|line| line.trim_start_matches(['{', ' ', '"', '\'']).starts_with(CONFIGS)) {
        return Ok(Vec::new());
    }
    let head = yaml::read(&head).map_err(|error| anyhow::anyhow!("its metadata {error:#}"))?;
    let items = match head.get(CONFIGS) {
        None | Some(Node::Null) => return Ok(Vec::new()),
        Some(Node::List(items)) => items,
        Some(_) => bail!("`{CONFIGS}` must be a list of configurations"),
    };
    let mut found: Vec<Config> = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let place = format!("`{CONFIGS}`, entry {}", number + 1);
        let config = config(item).with_context(|| place.clone())?;
        ensure!(found.iter().all(|other| other.name != config.name), "{place}: `{}` is there twice", config.name);
        found.push(config);
    }
    Ok(found)
}

/// Returns the metadata at the top of a card, without the lines `---` around it.
fn metadata(card: &str) -> Option<String> {
    let mut lines = card.trim_start().lines();
    lines.next().filter(|line| *line == "---")?;
    let mut head = String::new();
    for line in lines {
        if line.strip_prefix("---").is_some_and(|rest| rest.trim_matches([' ', '\t']).is_empty()) {
            return Some(head);
        }
        head += line;
        head.push('\n');
    }
    None
}

fn config(item: &Node) -> Result<Config> {
    let Node::Mapping(entries) = item else { bail!("must be a mapping with `config_name` and `data_files`") };
    ensure!(
        entries.iter().all(|(key, _)| key != "<<"),
        "takes keys from elsewhere (`<<`), which bella does not follow"
    );
    let Some(Node::Text(name)) = item.get("config_name") else { bail!("must have a `config_name`") };
    named(name, item).with_context(|| format!("`{name}`"))
}

/// Reads the configuration of this name.
fn named(name: &str, item: &Node) -> Result<Config> {
    Ok(Config {
        name: name.to_string(),
        is_default: is_true(item.get("default")).context("default")?,
        folder: match item.get("data_dir") {
            None | Some(Node::Null) => String::new(),
            Some(Node::Text(folder)) => plain(folder).context("data_dir")?,
            Some(_) => bail!("data_dir must be the path of a folder"),
        },
        files: item.get("data_files").filter(|files| **files != Node::Null).map(files).transpose()?,
    })
}

/// Returns what a value says that YAML has as a boolean.
fn is_true(value: Option<&Node>) -> Result<bool> {
    match value {
        None | Some(Node::Null) => Ok(false),
        Some(Node::Text(text)) if ["true", "yes", "on"].contains(&text.to_lowercase().as_str()) => Ok(true),
        Some(Node::Text(text)) if ["false", "no", "off"].contains(&text.to_lowercase().as_str()) => Ok(false),
        Some(_) => bail!("must be true or false"),
    }
}

/// Returns a path below the root without the parts that mean nothing.
fn plain(path: &str) -> Result<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !["", "."].contains(part)).collect();
    let is_elsewhere = path.starts_with('/') || path.contains("://") || path.contains("::") || parts.contains(&"..");
    ensure!(!is_elsewhere, "`{path}` leads out of the repository");
    Ok(parts.join("/"))
}

/// The forms of `data_files`.
const FORMS: &str = "data_files must be a pattern, a list of patterns, or a list of mappings of `split` and `path`";

/// Reads `data_files`: patterns, or the patterns of each split.
fn files(value: &Node) -> Result<Vec<Files>> {
    let items = match value {
        Node::List(items) if items.iter().any(|item| !matches!(item, Node::Text(_))) => items,
        patterns => return Ok(vec![Files { split: ALL.to_string(), patterns: texts(patterns)? }]),
    };
    let mut found: Vec<Files> = Vec::new();
    for item in items {
        let (Node::Mapping(entries), Some(Node::Text(split)), Some(path)) = (item, item.get("split"), item.get("path"))
        else {
            bail!(FORMS)
        };
        ensure!(entries.len() == 2, "{FORMS}, and no other key");
        let is_word = |part: &str| !part.is_empty() && part.chars().all(|one| one.is_alphanumeric() || one == '_');
        ensure!(split.split('.').all(is_word), "the split `{split}` must be of letters, digits, `_` and `.`");
        ensure!(found.iter().all(|other| other.split != *split), "the split `{split}` is there twice");
        found.push(Files { split: split.clone(), patterns: texts(path)? });
    }
    Ok(found)
}

/// Returns a pattern or a list of them, none of which leads out of the root.
fn texts(value: &Node) -> Result<Vec<String>> {
    let one = |node: &Node| match node {
        Node::Text(text) => plain(text),
        _ => bail!(FORMS),
    };
    match value {
        Node::List(items) => {
            ensure!(!items.is_empty(), "data_files names no file");
            items.iter().map(one).collect()
        }
        text => Ok(vec![one(text)?]),
    }
}
