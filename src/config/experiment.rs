//! The checked experiment: what every key of a config means.

use std::cell::OnceCell;
use std::path::PathBuf;

use serde::Serialize;

use super::reader::{Bounds, Choice, Reader};
use super::training::Training;
use super::tree::{Problems, Tree, Value};
use crate::backbone::Activation;
use crate::data::order::{Holdout, stratified_validation_split};
use crate::data::{Augment, DATASETS, Dataset, Interpolation, SplitName};
use crate::head::{HEADS, HeadSpec};

/// Everything a run needs to know, checked.
pub struct Experiment {
    /// The experiment: its results share one CSV.
    pub name: String,
    pub seed: u64,
    pub checkpoint: CheckpointSpec,
    pub head: Chosen<dyn HeadSpec>,
    pub data: DataSpec,
    /// Absent where the checkpoint is only evaluated.
    pub training: Option<Training>,
    /// Of the files it names, once asked for.
    pub(super) file_hashes: OnceCell<String>,
    pub(super) checkpoint_hash: OnceCell<String>,
}

/// A chosen entry of a registry.
pub struct Chosen<T: ?Sized> {
    pub key: String,
    pub spec: Box<T>,
}

/// `[checkpoint]`.
#[derive(Serialize)]
pub struct CheckpointSpec {
    pub path: PathBuf,
    /// Pixels a side; the checkpoint's own by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<i64>,
    pub normalize: Normalize,
    /// The filter by which images get the size of the checkpoint.
    #[serde(skip_serializing_if = "is_bicubic")]
    pub interpolation: Interpolation,
    /// What the archive's names cannot tell, where the self-check needs help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
}

/// Mean and standard deviation of each colour channel, on pixels in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Normalize {
    pub mean: [f64; 3],
    pub std: [f64; 3],
}

impl Normalize {
    /// OpenAI's CLIP.
    pub const CLIP: Normalize =
        Normalize { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] };
    pub const IMAGENET: Normalize = Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
}

/// `[data.*]`: the data set and what holds for all of them.
pub struct DataSpec {
    pub key: String,
    pub dataset: Box<dyn Dataset>,
    /// Name of the test set in results; the data set's own by default.
    pub label: String,
    /// The folder of decoded images that are kept on disk; sets of image files use it.
    pub cache: Option<PathBuf>,
    /// Random views of training images.
    pub augment: Option<Augment>,
    pub validation: Validation,
    /// Share of the training images whose label is replaced by another class, to see who notices.
    pub label_noise: f64,
}

/// What epochs and settings are chosen by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Validation {
    /// A share of the training images, held out of each class; 0 for none.
    HeldOut(f64),
    /// The published validation split: no training image is lost.
    Published,
}

impl Validation {
    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self == Validation::HeldOut(0.0)
    }

    /// The training images `labels: [N]` cut in two; none is held out where the validation split is published.
    pub fn holdout(self, seed: u64, labels: &[u32]) -> Holdout {
        match self {
            Validation::HeldOut(share) => stratified_validation_split(seed, labels, share),
            Validation::Published => Holdout { train: (0..labels.len() as u32).collect(), validation: Vec::new() },
        }
    }

    /// A share, or the word `"val"`.
    fn read(reader: &Reader) -> Validation {
        if !reader.is_text("validation") {
            return Validation::HeldOut(reader.float("validation", Bounds::from_below(0.0, 1.0)).or(0.0));
        }
        if reader.string("validation").optional().is_some_and(|word| word != "val") {
            reader.problem("validation", "must be a number from 0 to below 1, or \"val\" for the published split");
            return Validation::HeldOut(0.0);
        }
        Validation::Published
    }

    fn resolved(self) -> toml::Value {
        match self {
            Validation::HeldOut(share) => share.into(),
            Validation::Published => "val".into(),
        }
    }
}

/// Why an experiment cannot have this name: its results would share a file of the results folder that bella writes for
/// something else. Letters of both cases are the same file on some systems.
fn taken(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    let file = match lower.strip_suffix("-ood") {
        Some(other) => format!("{other}-ood.csv holds the out-of-distribution results of an experiment `{other}`"),
        None if lower == "bench" => "bench.csv holds the measurements of `bella bench`".to_string(),
        None => return None,
    };
    Some(format!("must not be `bench` or end in `-ood`: {file}; choose another name, say `{name}-experiment`"))
}

impl Experiment {
    /// Reads and checks a merged config.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn read(tree: &Tree) -> Result<Experiment, Problems> {
        let root = Reader::root(tree);
        let name = root.string("name").required();
        if name.contains(['/', '\\']) || name.starts_with('.') {
            root.problem("name", "must be usable as a file name: no slashes, no leading dot");
        }
        if let Some(why) = taken(&name) {
            root.problem("name", why);
        }
        let seed = root.integer("seed", 0..=i64::MAX).required() as u64;
        let checkpoint = CheckpointSpec::read(root.section("checkpoint"));
        let head = choose(&root, "head", HEADS.iter().map(|e| (e.key, e.read)), |read, reader| read(reader));
        let data = DataSpec::read(&root);
        let trains = ["subspace", "method", "optimizer", "train"].iter().any(|key| root.has(key));
        let head_training = head.as_ref().map(|h| h.spec.training());
        let training = if trains { Training::read(&root, &data, head_training) } else { None };
        let (Some(head), Some(data)) = (head, data) else {
            return Err(root.close(()).err().unwrap_or_default());
        };
        let incomplete = trains && training.is_none();
        // The resolved config says what was taken: it must not change with the data set of an evaluation.
        let head = Chosen { spec: head.spec.settle(&data.key), key: head.key };
        let (file_hashes, checkpoint_hash) = (OnceCell::new(), OnceCell::new());
        let experiment = Experiment { name, seed, checkpoint, head, data, training, file_hashes, checkpoint_hash };
        let experiment = root.close(experiment)?;
        // A table that could not be read has been reported.
        debug_assert!(!incomplete);
        Ok(experiment)
    }

    /// The settings as a config that reads back to the same experiment.
    pub fn resolved(&self) -> toml::Table {
        let mut all = toml::Table::new();
        let path = |path: &PathBuf| toml::Value::from(path.to_string_lossy().into_owned());
        let nest = |key: &str, table: toml::Table| {
            toml::Value::Table(toml::Table::from_iter([(key.to_string(), toml::Value::Table(table))]))
        };
        all.insert("name".into(), self.name.clone().into());
        all.insert("seed".into(), (self.seed as i64).into());
        all.insert("checkpoint".into(), super::table(&self.checkpoint).into());
        all.insert("head".into(), nest(&self.head.key, self.head.spec.resolved()));
        let mut data = self.data.dataset.resolved();
        data.insert("label".into(), self.data.label.clone().into());
        data.insert("validation".into(), self.data.validation.resolved());
        if self.data.label_noise > 0.0 {
            data.insert("label_noise".into(), self.data.label_noise.into());
        }
        self.data.cache.iter().for_each(|cache| drop(data.insert("cache".into(), path(cache))));
        self.data.augment.iter().for_each(|augment| drop(data.insert("augment".into(), super::table(augment).into())));
        all.insert("data".into(), nest(&self.data.key, data));
        if let Some(training) = &self.training {
            all.insert("subspace".into(), nest(&training.subspace.key, training.subspace.spec.resolved()));
            all.insert("method".into(), nest(&training.method.key, training.method.spec.resolved()));
            all.insert("optimizer".into(), nest(&training.optimizer.key, training.optimizer.spec.resolved()));
            all.insert("train".into(), super::table(&training.train).into());
        }
        all
    }
}

/// Serde's way to leave a default out, so that runs keep their identity.
fn is_bicubic(interpolation: &Interpolation) -> bool {
    *interpolation == Interpolation::Bicubic
}

/// Reads one of the choice tables through its registry.
pub(super) fn choose<F: Copy, T: ?Sized>(
    root: &Reader,
    key: &str,
    entries: impl Iterator<Item = (&'static str, F)>,
    read: impl Fn(F, &Reader) -> Box<T>,
) -> Option<Chosen<T>> {
    let entries: Vec<(&'static str, F)> = entries.collect();
    let known: Vec<&str> = entries.iter().map(|(key, _)| *key).collect();
    let (key, reader) = root.one_of(key, &known)?;
    let (_, entry) = entries.into_iter().find(|(known, _)| *known == key)?;
    let spec = read(entry, &reader);
    reader.finish();
    Some(Chosen { key, spec })
}

impl CheckpointSpec {
    fn read(reader: Reader) -> CheckpointSpec {
        let spec = CheckpointSpec {
            path: reader.path("path").required_because("the TorchScript archive (.pt) to start from"),
            image_size: reader.integer("image_size", 1..=4096).optional(),
            normalize: Normalize::read(&reader),
            interpolation: reader.choice("interpolation").or(Interpolation::Bicubic),
            heads: reader.integer("heads", 1..=1024).optional(),
            activation: reader.choice("activation").optional(),
            eps: reader.float("eps", Bounds::above(0.0)).optional(),
        };
        reader.finish();
        spec
    }
}

impl Normalize {
    fn read(reader: &Reader) -> Normalize {
        #[derive(Clone, Copy)]
        struct Named(Normalize);
        impl Choice for Named {
            const CHOICES: &'static [(&'static str, Self)] =
                &[("clip", Named(Normalize::CLIP)), ("imagenet", Named(Normalize::IMAGENET))];
        }
        if !reader.is_table("normalize") {
            return reader.choice::<Named>("normalize").required_or(Named(Normalize::CLIP), WHAT_NORMALIZE).0;
        }
        let section = reader.section("normalize");
        let three = |key: &str, bounds: Bounds| -> [f64; 3] {
            let values = section.floats(key, bounds).required();
            <[f64; 3]>::try_from(values.as_slice()).unwrap_or_else(|_| {
                if !values.is_empty() {
                    section.problem(key, "must be three numbers: red, green, blue");
                }
                [1.0; 3]
            })
        };
        let normalize = Normalize { mean: three("mean", Bounds::any()), std: three("std", Bounds::above(0.0)) };
        section.finish();
        normalize
    }
}

const WHAT_NORMALIZE: &str =
    "\"clip\", \"imagenet\", or { mean = [r, g, b], std = [r, g, b] }: what the checkpoint was trained with";

impl DataSpec {
    /// The data set of a config; its other tables are not looked at.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn alone(mut tree: Tree) -> Result<DataSpec, Problems> {
        if let Value::Table(all) = &mut tree.root.value {
            all.retain(|key, _| key == "data");
        }
        let root = Reader::root(&tree);
        match DataSpec::read(&root) {
            Some(data) => root.close(data),
            None => Err(root.close(()).err().unwrap_or_default()),
        }
    }

    /// The test sets that are evaluated one by one, each under its label; empty where there is one.
    pub fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        let sets = self.dataset.test_sets().into_iter();
        sets.map(|(name, set)| (format!("{}-{name}", self.label), set)).collect()
    }

    /// The names of all test sets in results.
    pub fn test_names(&self) -> Vec<String> {
        let names: Vec<String> = self.test_sets().into_iter().map(|(name, _)| name).collect();
        if names.is_empty() { vec![self.label.clone()] } else { names }
    }

    fn read(root: &Reader) -> Option<DataSpec> {
        let known: Vec<&str> = DATASETS.iter().map(|e| e.key).collect();
        let (key, mut reader) = root.one_of("data", &known)?;
        let entry = DATASETS.iter().find(|e| e.key == key)?;
        let label = reader.string("label").optional();
        let validation = Validation::read(&reader);
        let label_noise = reader.float("label_noise", Bounds::from_below(0.0, 1.0)).or(0.0);
        let cache = reader.path("cache").optional();
        let augment = Augment::read(&reader);
        let dataset = (entry.read)(&mut reader);
        if cache.is_some() && dataset.resize().is_none() {
            reader
                .problem("cache", format!("{key} is read as it is stored, so there is nothing to keep; leave it out"));
        }
        let published = dataset.published();
        if validation == Validation::Published
            && !published.images.is_empty()
            && published.images_of(SplitName::Val).is_none()
        {
            reader.problem("validation", format!("{key} has no split `val` as it is set; give a share, say 0.1"));
        }
        reader.finish();
        let label = label.unwrap_or_else(|| dataset.label());
        Some(DataSpec { key, dataset, label, cache, augment, validation, label_noise })
    }
}
