//! Looks at the checkpoint of a user (its normalisation, classifier and text tower) and at the images (their layout, classes
//! and numbers), on which a first config depends.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::base::small::counted;
use crate::data::read::class_folders::folders;
use crate::data::{DATASETS, Request, SplitName};
use crate::experiment::{DataSpec, Validation};
use crate::hub;
use crate::model::OpenedCheckpoint;
use crate::model::folder::Preprocessing;
use crate::model::module::{Opened, Wanted, open};
use crate::model::network::{Network, SlotKind};
use crate::model::recognition::identify::{Fixed, Identified};
use crate::schema::{Choice, Tree};

/// The low-rank subspace of a vision transformer, as text.
const LOW_RANK: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"mlp.fc\", \"mlp.proj\"] # also attn.qkv, attn.proj\n";

/// A network that has been opened and self-checked.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The path or the name, as the user gives it.
    pub path: PathBuf,
    /// A description in one line.
    pub about: String,
    /// The value of `checkpoint.normalize` with the reason for it; `None` if files beside the weights tell it.
    pub normalize: Option<(&'static str, &'static str)>,
    /// The number of classes of the checkpoint's own classifier, if it has one.
    pub classes: Option<usize>,
    /// Whether it has a text tower, from which a classifier can be built.
    pub has_text: bool,
    /// The number of pixels per side.
    pub image_size: usize,
    /// Whether it runs by its own forward.
    pub is_module: bool,
    /// The table of the low-rank subspace, or of the one that takes its place where there is nothing to adapt.
    pub low_rank: String,
}

impl Checkpoint {
    /// Opens a checkpoint as training would: a vision transformer, or a module of images with `module_size` pixels per
    /// side.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if its network is not known.
    pub fn look(path: &Path, module_size: Option<i64>) -> Result<Checkpoint> {
        let local = hub::local(path)?;
        anyhow::ensure!(local.exists(), "{}: no such file or folder", path.display());
        let found = match module_size {
            Some(side) => Checkpoint::look_at_module(&local, side),
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
            normalize: Preprocessing::of(path).normalize.is_none().then_some(naming.normalize),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text,
            image_size: side as usize,
            is_module: false,
            low_rank: LOW_RANK.into(),
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
            normalize: Some((
                "\"imagenet\"",
                "as most of torchvision's and timm's networks; compare with its model card",
            )),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text: false,
            image_size: side as usize,
            is_module: true,
            low_rank,
        })
    }
}

/// The share of the images that is drawn as the test split where there is none, and the share held out of the others.
const SHARE: f64 = 0.2;

/// A data set whose files have been listed.
#[derive(Clone, Debug)]
pub struct Images {
    /// The registry key.
    pub key: String,
    /// The keys of its table, as lines of TOML.
    pub table: String,
    /// The place of the files; `None` for the embedded set.
    pub root: Option<PathBuf>,
    pub classes: Vec<String>,
    /// The number of images that are trained on, those held out not counted.
    pub train: usize,
    /// The numbers of images of each split, in words.
    pub about: String,
}

impl Images {
    /// Looks at what the user names: `KEY=ROOT` of a known data set, `KEY` of one without files, a folder of class
    /// folders, a folder or a file with a list, or a repository of the Hub.
    ///
    /// # Errors
    /// Fails if the layout is not known, or if the files of the training split cannot be listed.
    pub fn look(named: &str, seed: u64) -> Result<Images> {
        let (key, lines, root) = recognised(named)?;
        let validation =
            if has_published_validation(&key, &lines)? { "\"val\"".to_string() } else { SHARE.to_string() };
        let table = format!("{lines}validation = {validation}\n");
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
            "{}, {train} training, {held_out} validation and {} test images",
            counted(classes.len(), "class", "classes"),
            load(SplitName::Test)?.len()
        );
        Ok(Images { key, table, root, classes, train, about })
    }
}

/// Returns the registry key, the lines of the table without `validation`, and the root.
fn recognised(named: &str) -> Result<(String, String, Option<PathBuf>)> {
    let known = |key: &str| DATASETS.iter().any(|entry| entry.key == key);
    let rooted = |key: &str, root: &Path, more: &str| {
        let line = format!("root = {}\n{more}", toml::Value::from(root.to_string_lossy().into_owned()));
        (key.to_string(), line, Some(root.to_path_buf()))
    };
    if let Some((key, root)) = named.split_once('=').filter(|(key, _)| known(key)) {
        return Ok(rooted(key, Path::new(root), share_of(key, Path::new(root))));
    }
    if known(named) && !Path::new(named).exists() {
        return Ok((named.to_string(), String::new(), None));
    }
    let path = Path::new(named);
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_file() && file.ends_with(".csv") {
        let root = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Ok(rooted("list", root, &format!("list = {}\n", toml::Value::from(file))));
    }
    let keys = DATASETS.iter().map(|entry| entry.key).collect::<Vec<_>>().join(", ");
    if let Some(files) = hub::data_files(path)? {
        if files.iter().any(|file| file.ends_with(".tar")) {
            return Ok(rooted("webdataset", path, ""));
        }
        bail!(
            "{named}: has no tar archives, and bella knows no other layout in it; a data set of its own is named by KEY=ROOT, with \
             KEY one of {keys}"
        );
    }
    if !path.is_dir() {
        bail!(
            "{named}: no such folder, and no data set of that name; for a known one: KEY=ROOT, with KEY one of {keys}"
        );
    }
    for (file, key) in [("list.csv", "list"), ("classnames.txt", "webdataset")] {
        if path.join(file).is_file() {
            return Ok(rooted(key, path, ""));
        }
    }
    for (marker, key) in [("cifar-10-batches-bin", "cifar10"), ("cifar-100-binary", "cifar100")] {
        if path.join(marker).is_dir() {
            return Ok(rooted(key, path, ""));
        }
    }
    folders(path, "<class>/<images>").with_context(|| {
        format!(
            "{named}: no layout that bella knows; a data set of its own is named by KEY=ROOT, with KEY one of {keys}"
        )
    })?;
    Ok(rooted("image-folder", path, share_of("image-folder", path)))
}

/// Returns the line that draws a test split, for class folders that have none.
fn share_of(key: &str, root: &Path) -> &'static str {
    let is_flat = key == "image-folder" && !root.join(SplitName::Test.word()).is_dir();
    if is_flat { "test = 0.2 # this share of each class is the test split, the same for every seed\n" } else { "" }
}

fn has_published_validation(key: &str, lines: &str) -> Result<bool> {
    let splits = read(key, lines)?.dataset.splits()?;
    Ok(splits.contains(&SplitName::Val))
}

fn read(key: &str, table: &str) -> Result<DataSpec> {
    let tree = Tree::parse("--data", &format!("[data.{key}]\n{table}"))?;
    Ok(DataSpec::alone(tree)?)
}
