//! Looks at the checkpoint of a user (its normalisation, classifier and text tower) and at the samples (their layout, classes
//! and numbers), on which a first config depends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::base::files::read_json;
use crate::base::small::{Usage, counted};
use crate::data::{Medium, Request, Resize, SplitName};
use crate::experiment::{DataSpec, Validation};
use crate::hub;
use crate::model::encoder::{self, Encoder, is_encoder};
use crate::model::folder::texts::{Agreement, class_names};
use crate::model::folder::{Preprocessing, config_file, home, usual_normalize};
use crate::model::module::{Limit, Opened, Wanted, open};
use crate::model::network::{Network, SlotKind};
use crate::model::recognition::identify::{Fixed, Identified};
use crate::model::recognition::naming::Supposed;
use crate::model::values::Values;
use crate::model::{Normalize, OpenedCheckpoint, language, sighted};
use crate::schema::Tree;

use super::layouts::{Layout, expanded, recognised};

/// The low-rank subspace of a vision transformer, as text.
const LOW_RANK: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"mlp.fc\", \"mlp.proj\"] # also attn.qkv, attn.proj\n";

/// The low-rank subspace of a network of texts, as text.
const LOW_RANK_OF_TEXTS: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"attn.q\", \"attn.v\"] # also attn.k, attn.proj, mlp.fc, mlp.proj\n";

/// The same of a network whose queries, keys and values are one layer.
const LOW_RANK_OF_FUSED: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"attn.qkv\"] # also attn.proj and the layers of the MLP\n";

/// Returns the low-rank subspace of a network of texts, whose queries, keys and values may be one layer.
fn low_rank_of_texts(is_fused: bool) -> String {
    if is_fused { LOW_RANK_OF_FUSED.into() } else { LOW_RANK_OF_TEXTS.into() }
}

/// The line of the precision of a network that bella computes itself.
const FASTEST: &str = "precision = \"auto\" # bf16 where this machine computes it natively";

/// A network that has been opened and self-checked.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The path or the name, as the user gives it but with variables of the environment replaced.
    pub path: PathBuf,
    /// A description in one line.
    pub about: String,
    /// The value of `checkpoint.normalize` with the reason for it; `None` if files beside the weights tell it.
    pub normalize: Option<Suggested>,
    /// The number of classes of the checkpoint's own classifier, if it has one.
    pub classes: Option<usize>,
    /// Whether it has a text tower, from which a classifier can be built.
    pub has_text: bool,
    /// The number of pixels per side of an image; `None` for a text encoder.
    pub image_size: Option<usize>,
    /// More lines of `[checkpoint]`.
    pub lines: String,
    /// The line of the precision.
    pub precision: &'static str,
    /// The table of the low-rank subspace, or of the one that takes its place where there is nothing to adapt.
    pub low_rank: String,
    /// More lines of the table of a set of questions, for a network that answers some.
    pub questions: Option<&'static str>,
}

impl Checkpoint {
    /// Opens a checkpoint as training would: a vision transformer, a text encoder, or a module of images with `module_size`
    /// pixels per side. Of a network that writes, whose weights may be many, the config alone is read.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if its network is not known.
    pub fn look(path: &Path, module_size: Option<i64>) -> Result<Checkpoint> {
        let path = &expanded(path)?;
        let local = hub::local(path)?;
        anyhow::ensure!(local.exists(), "{}: no such file or folder", path.display());
        let found = match module_size {
            Some(side) => Checkpoint::look_at_module(&local, side),
            None if is_encoder(&local) => Checkpoint::look_at_encoder(&local),
            None if language::is_language(&local) => Checkpoint::look_at_decoder(&local),
            None if sighted::is_sighted(&local) => Checkpoint::look_at_sighted(&local),
            None => Checkpoint::look_at_vit(&local),
        }?;
        Ok(Checkpoint { path: path.to_path_buf(), ..found })
    }

    fn look_at_vit(path: &Path) -> Result<Checkpoint> {
        let opened = OpenedCheckpoint::open(path, Fixed::default())?;
        let has_text = opened.text().context("the text tower")?.is_some();
        let Identified { vit, naming, head, .. } = &opened.identified;
        let geometry = &vit.geometry;
        let side = geometry.image_size();
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{} ViT, width {}, {} blocks, patch {}, {side} px{}",
                naming.key,
                geometry.width,
                geometry.blocks,
                geometry.patch,
                if has_text { ", with a text tower" } else { "" }
            ),
            normalize: suggested(path, naming.normalize),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text,
            image_size: Some(side as usize),
            lines: String::new(),
            precision: FASTEST,
            low_rank: LOW_RANK.into(),
            questions: None,
        })
    }

    fn look_at_encoder(path: &Path) -> Result<Checkpoint> {
        let opened = encoder::open(path, &home(path), Limit::default(), None)?;
        let Encoder { geometry, tokens, .. } = &opened.encoder;
        let encoder::Geometry { width, blocks, .. } = geometry;
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{}, a text encoder, width {width}, {blocks} blocks, texts of at most {tokens} tokens",
                geometry.family.about
            ),
            normalize: None,
            classes: opened.head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text: false,
            image_size: None,
            lines: format!("max_tokens = {tokens} # fewer take less time\ntruncate = true # longer texts are cut\n"),
            precision: FASTEST,
            low_rank: low_rank_of_texts(geometry.traits.is_fused),
            questions: None,
        })
    }

    fn look_at_decoder(path: &Path) -> Result<Checkpoint> {
        let values = config_of(path)?;
        let network = language::described(&values, None)?;
        let classes = values.classifies_texts().then(|| values.classes()).transpose()?;
        let language::Geometry { width, blocks, family, traits, .. } = &network.geometry;
        let tokens = network.tokens;
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!("{}, width {width}, {blocks} blocks, texts of at most {tokens} tokens", family.about),
            normalize: None,
            classes: classes.map(|(_, count)| count as usize),
            has_text: false,
            image_size: None,
            lines: format!("max_tokens = {tokens} # longer texts are refused\n"),
            precision: FASTEST,
            low_rank: low_rank_of_texts(traits.is_qkv_fused),
            questions: None,
        })
    }

    fn look_at_sighted(path: &Path) -> Result<Checkpoint> {
        let network = sighted::described(&config_of(path)?, None, Normalize::CLIP)?;
        let (language::Geometry { width, blocks, family, traits, .. }, eyes) =
            (&network.language.geometry, &network.sight.eyes);
        let (tokens, patches) = (network.language.tokens, network.sight.patches());
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{} on {}, width {width}, {blocks} blocks, {} px, prompts of at most {tokens} tokens",
                eyes.family.about, family.about, eyes.image_size
            ),
            normalize: suggested(path, Supposed { value: Normalize::CLIP, why: "compare with its model card" }),
            classes: None,
            has_text: false,
            image_size: Some(eyes.image_size as usize),
            lines: format!("max_tokens = {tokens} # {patches} of the image, and those of the text\n"),
            precision: FASTEST,
            low_rank: low_rank_of_texts(traits.is_qkv_fused),
            questions: Some(eyes.family.questions),
        })
    }

    fn look_at_module(path: &Path, side: i64) -> Result<Checkpoint> {
        let Opened { module, base, head, .. } = open(path, &Wanted::Images(side))?;
        let slots = module.slots();
        let has = |kind: SlotKind| slots.iter().any(|slot| slot.kind == kind);
        let targets: Vec<&str> = [(SlotKind::Linear, "\"linear\""), (SlotKind::Pointwise, "\"pointwise\"")]
            .into_iter()
            .filter_map(|(kind, target)| has(kind).then_some(target))
            .collect();
        let low_rank = match &targets[..] {
            [] => "[subspace.full] # the module has no linear layers or 1 x 1 convolutions to adapt\n".to_string(),
            targets => format!("[subspace.low-rank]\nrank = 4\ntargets = [{}]\n", targets.join(", ")),
        };
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!("a module with {} parameters, {side} px", base.count()),
            normalize: Some(Suggested::of(Supposed {
                value: Normalize::IMAGENET,
                why: "as most of torchvision's and timm's networks; compare with its model card",
            })),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text: false,
            image_size: Some(side as usize),
            lines: format!("kind = \"module\" # it runs by its own forward\nimage_size = {side}\n"),
            precision: "precision = \"f32\" # a module computes in the type in which it is stored",
            low_rank,
            questions: None,
        })
    }
}

/// The value of a key that nothing tells, and the reason for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggested {
    pub value: String,
    pub why: String,
}

impl Suggested {
    fn of(supposed: Supposed) -> Suggested {
        Suggested { value: supposed.value.in_config(), why: supposed.why.to_string() }
    }
}

/// Returns a value of `checkpoint.normalize` for weights beside which nothing tells it: that of the model type, where a config names one,
/// else the usual one. `None` if it is told.
fn suggested(path: &Path, usual: Supposed) -> Option<Suggested> {
    Preprocessing::of(path).normalize.is_none().then(|| match usual_normalize(path) {
        Some((model_type, of_type)) => Suggested {
            value: of_type.in_config(),
            why: format!("as published networks of model_type {model_type}; compare with its model card"),
        },
        None => Suggested::of(usual),
    })
}

/// Returns what the config beside weights says.
fn config_of(path: &Path) -> Result<Values> {
    let file = config_file(&home(path)).context("there is no config.json beside the weights")?;
    Ok(Values::new(&file, read_json(&file)?))
}

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
        let listed = toml::Value::from(classes.clone());
        let table = format!("classes = {listed} # in the order of the checkpoint's classifier\n{}", self.table);
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
