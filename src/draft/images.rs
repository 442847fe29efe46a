//! Looks at the samples of a user, on which a first config depends: their layout, classes and numbers.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::checkpoint::Checkpoint;
use super::layouts::{Layout, recognised};
use crate::base::small::{Usage, counted};
use crate::data::{Medium, Request, Resize, SplitName};
use crate::experiment::{DataSpec, Validation};
use crate::hub;
use crate::model::folder::Preprocessing;
use crate::model::folder::texts::{Agreement, class_names};
use crate::schema::Tree;

/// The key of the label words of texts.
const LABELS: &str = "labels";

/// The share of the images that is drawn as the test split where there is none, and the share held out of the others.
const SHARE: f64 = 0.2;

/// A data set whose files have been listed.
#[derive(Clone, Debug)]
pub struct Images {
    /// The registry key.
    pub key: String,
    /// The name of the set in results.
    pub label: String,
    /// The keys of its table, as lines of TOML.
    pub table: String,
    /// The place of the files; `None` for the embedded set.
    pub root: Option<PathBuf>,
    pub classes: Vec<String>,
    /// The number of images that are trained on, those held out not counted.
    pub train: usize,
    /// The numbers of images of each split, in words.
    pub about: String,
    /// Whether its samples are questions about images.
    pub has_questions: bool,
}

impl Images {
    /// Looks at what the user names: `KEY=ROOT` of a known data set, `KEY` of one whose files the Hub has or which has none, each also
    /// with a task (`glue/sst2`), a folder of class folders, tables, archives or JSON lines, a folder or a file with a list, or a
    /// repository of the Hub. `sets` are further keys of its table, such as `data.medmnist.size=64`.
    ///
    /// # Errors
    /// Fails if the layout is not known, if a further key is of another table, or if the files of the training split cannot be listed.
    pub fn look(named: &str, seed: u64, sets: &[String]) -> Result<Images> {
        let Layout { key, lines, root } = recognised(named)?;
        let mut table = with_further(&key, lines, sets)?;
        if !table.lines().any(|line| key_of(line) == "validation") {
            let is_published = has_published_validation(&key, &table)?;
            let validation = if is_published { "\"val\"".to_string() } else { SHARE.to_string() };
            table += &format!("validation = {validation}\n");
        }
        let spec = read(&key, &table)?;
        let classes = spec.dataset.classes()?;
        ensure!(classes.len() > 1, "{named}: {} class: at least two are needed", classes.len());
        let request = Request::listing(1, &|_, _| {});
        let load = |split: SplitName| {
            let loaded = spec.dataset.load(split, &request);
            loaded.with_context(|| format!("the {split} split of data.{key}"))
        };
        let holdout = spec.validation.holdout(seed, &load(SplitName::Train)?.labels);
        let held_out = match spec.validation {
            Validation::Published => load(SplitName::Val)?.len(),
            Validation::HeldOut(_) => holdout.validation.len(),
        };
        let train = holdout.train.len();
        let about = format!(
            "{}, {train} training, {held_out} validation and {} test {}",
            counted(classes.len(), "class", "classes"),
            load(SplitName::Test)?.len(),
            match spec.dataset.medium() {
                Medium::Texts => "texts",
                Medium::Questions => "questions",
                _ => "images",
            }
        );
        let has_questions = spec.dataset.medium() == Medium::Questions;
        Ok(Images { key, label: spec.dataset.label(), table, root, classes, train, about, has_questions })
    }

    /// Returns the samples with their classes in the order of the checkpoint's own classifier, where the files beside its weights
    /// name the same classes in another order. A set whose order is not the config's to choose stays as it is.
    ///
    /// # Errors
    /// Fails if the checkpoint is a name that is in no cache.
    pub fn in_order_of(self, checkpoint: &Checkpoint) -> Result<Images> {
        let names = class_names(&hub::local(&checkpoint.path)?)
            .filter(|names| checkpoint.classes == Some(names.len()) && names.len() == self.classes.len());
        let Some(Agreement::OtherOrder(classes)) = names.map(|names| Agreement::of(&names, &self.classes)) else {
            return Ok(self);
        };
        // The key by which a set of this kind names its classes.
        let key = if self.table.lines().any(|line| key_of(line) == LABELS) { LABELS } else { "classes" };
        let listed = toml::Value::from(classes.clone());
        let others: Vec<&str> = self.table.lines().filter(|line| key_of(line) != key).collect();
        let table = format!("{key} = {listed} # in the order of the checkpoint's classifier\n{}\n", others.join("\n"));
        Ok(if read(&self.key, &table).is_ok() { Images { table, classes, ..self } } else { self })
    }

    /// Returns the samples stretched to squares where the checkpoint's folder asks for that, and the user has not said otherwise. Questions
    /// are prepared as the family of the network says.
    ///
    /// # Errors
    /// Fails if the checkpoint is a name that is in no cache.
    pub fn shaped_for(self, checkpoint: &Checkpoint) -> Result<Images> {
        let asked = Preprocessing::of(&hub::local(&checkpoint.path)?);
        let is_said = self.has_questions || self.table.lines().any(|line| key_of(line) == "resize");
        let (Some(file), Some(Resize::Stretch), false) = (asked.file, asked.resize, is_said) else { return Ok(self) };
        if read(&self.key, &self.table)?.dataset.resize().is_none_or(|own| own == Resize::Stretch) {
            return Ok(self);
        }
        let table = format!("{}resize = \"{}\" # as {file} asks\n", self.table, Resize::Stretch);
        Ok(Images { table, ..self })
    }
}

/// Returns the lines of a table with further keys, each of which replaces the line of the same key.
fn with_further(key: &str, lines: String, sets: &[String]) -> Result<String> {
    let table = format!("data.{key}.");
    let mut lines: Vec<String> = lines.lines().map(str::to_string).collect();
    for set in sets {
        let further = set.strip_prefix(&table).and_then(|further| further.split_once('='));
        let Some((name, value)) = further else {
            return Err(Usage(format!("--set {set}: must be {table}KEY=VALUE, a key of the data set")).into());
        };
        let (name, value) = (name.trim(), value.trim());
        let is_value = toml::from_str::<toml::Table>(&format!("x = {value}")).is_ok();
        let value = if is_value { value.to_string() } else { toml::Value::from(value).to_string() };
        lines.retain(|line| key_of(line) != name);
        lines.push(format!("{name} = {value}"));
    }
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

/// Returns the key of a line of a table.
fn key_of(line: &str) -> &str {
    line.split('=').next().unwrap_or_default().trim()
}

fn has_published_validation(key: &str, lines: &str) -> Result<bool> {
    let splits = read(key, lines)?.dataset.splits()?;
    Ok(splits.contains(&SplitName::Val))
}

fn read(key: &str, table: &str) -> Result<DataSpec> {
    let tree = Tree::parse("--data", &format!("[data.{key}]\n{table}"))?;
    Ok(DataSpec::alone(tree)?)
}
