//! The plan of a rehearsal: the config that the rehearsed commands read, its overrides, its checkpoint and its data.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::base::small::shortened;
use crate::data::{Medium, Sizes};
use crate::experiment::{Experiment, Training, Validation};
use crate::methods::Origin;
use crate::rehearse::checkpoint::Checkpoint;
use crate::rehearse::evaluations::Evaluation;
use crate::rehearse::sizes::{CORRUPTIONS, MadeSet, TrainingPart, classes_of, training_part};
use crate::rehearse::{Folder, Options, Scale, evaluations};

/// The minutes between resume files: less than a step takes, so that the first step writes one.
const SAVE_MINUTES: f64 = 1e-9;
/// The largest batch size of a tiny rehearsal, and of one on texts, whose many tokens are as many rows each.
const TINY_BATCH: usize = 16;
const TINY_BATCH_OF_TEXTS: usize = 4;
const TINY_TEST_IMAGES: usize = 12;

/// A setting that the rehearsal has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    pub key: String,
    pub from: Option<toml::Value>,
    /// `None` if the key is left out.
    pub to: Option<toml::Value>,
}

impl std::fmt::Display for Override {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.to {
            Some(to) => write!(f, "{} = {}", self.key, short(to))?,
            None => write!(f, "{}: left out", self.key)?,
        }
        self.from.iter().try_for_each(|from| write!(f, " (was {})", short(from)))
    }
}

/// Returns a value as one line, shortened if it is long.
fn short(value: &toml::Value) -> String {
    shortened(&value.to_string().split_whitespace().collect::<Vec<_>>().join(" "), 60)
}

/// The random weights of a zero-shot head, if the config reads the head from a file.
pub struct MadeHead {
    pub path: PathBuf,
    pub classes: i64,
    pub width: i64,
}

/// Everything that a rehearsal needs to know.
pub struct Plan {
    /// The kind of samples that the network takes.
    pub medium: Medium,
    pub folder: Folder,
    /// The config that the rehearsed commands read.
    pub config: toml::Table,
    pub overridden: Vec<Override>,
    pub checkpoint: Checkpoint,
    pub head: Option<MadeHead>,
    /// The experiment's own set, followed by those of the evaluations.
    pub sets: Vec<MadeSet>,
    pub training: TrainingPart,
    /// The number of images of each test set.
    pub test_images: usize,
    pub evaluations: Vec<Evaluation>,
}

impl Plan {
    /// Plans a rehearsal without creating any file.
    ///
    /// # Errors
    /// Fails if the config trains nothing, or if it needs something that has no stand-in.
    pub fn new(experiment: &Experiment, options: &Options) -> Result<Plan> {
        let training = rehearsed(experiment)?;
        let folder = Folder::new(&options.out, &options.name);
        let mut edits = Edits { table: experiment.resolved(), made: Vec::new() };
        let checkpoint = Checkpoint::plan(experiment, options, &folder)?;
        edits.checkpoint(&checkpoint, options.scale);
        let medium = experiment.checkpoint.medium();
        let batch_size = edits.batch_size(training, largest_batch(options.scale, medium));
        let classes = classes_of(&*experiment.data.dataset);
        let part = training_part(experiment.seed, experiment.data.validation, classes, options.steps, batch_size);
        let test_images = options.images.unwrap_or(match options.scale {
            Scale::True => 2 * training.train.eval_batch_size,
            Scale::Tiny => TINY_TEST_IMAGES,
        });
        let own = own_set(experiment, options.scale, part, test_images, classes, &folder)?;
        edits.data(experiment, &own, &folder);
        let head = edits.head(experiment, &checkpoint, classes as i64, &folder)?;
        edits.train(training, options.steps);
        let planned = options.then.iter().enumerate().map(|(number, words)| {
            let place = evaluations::Place { folder: &folder, number, test_images, scale: options.scale };
            evaluations::plan(words, experiment, &place)
        });
        let (evaluations, made): (Vec<_>, Vec<_>) = planned.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let sets = std::iter::once(own).chain(made.into_iter().flatten()).collect();
        let Edits { table: config, made: overridden } = edits;
        Ok(Plan {
            medium,
            folder,
            config,
            overridden,
            checkpoint,
            head,
            sets,
            training: part,
            test_images,
            evaluations,
        })
    }
}

/// Returns what the experiment trains.
fn rehearsed(experiment: &Experiment) -> Result<&Training> {
    let training = experiment.training.as_ref().context("the config has nothing to train, so nothing to rehearse")?;
    if let Origin::Run(_) = training.method.spec.origin() {
        bail!(
            "method.{}.from: names a trained run, which a rehearsal does not have; leave it out",
            training.method.key
        );
    }
    Ok(training)
}

/// Returns the largest batch of a rehearsal.
fn largest_batch(scale: Scale, medium: Medium) -> usize {
    match scale {
        Scale::True => usize::MAX,
        Scale::Tiny if medium == Medium::Images => TINY_BATCH,
        Scale::Tiny => TINY_BATCH_OF_TEXTS,
    }
}

/// Returns the stand-in of the experiment's own data set.
fn own_set(
    experiment: &Experiment,
    scale: Scale,
    part: TrainingPart,
    test: usize,
    classes: usize,
    folder: &Folder,
) -> Result<MadeSet> {
    let data = &experiment.data;
    let val = if data.validation == Validation::Published { test } else { 0 };
    let (present, train) = (part.present, part.images);
    let sizes = |side| Sizes { classes, present, train, val, test, side, corruptions: CORRUPTIONS };
    MadeSet::new(&data.key, &*data.dataset, folder.data().join("own").join(&data.key), sizes, scale)
}

/// The resolved config while it is being changed.
struct Edits {
    table: toml::Table,
    made: Vec<Override>,
}

impl Edits {
    /// Sets the value at a path and records the change, unless the value is already there.
    fn put(&mut self, path: &[&str], value: impl Into<toml::Value>) {
        let value = value.into();
        let Some((last, tables)) = path.split_last() else { return };
        let mut inner = &mut self.table;
        for key in tables {
            let entry = inner.entry(key.to_string()).or_insert_with(|| toml::Table::new().into());
            let toml::Value::Table(table) = entry else { return };
            inner = table;
        }
        let from = inner.insert(last.to_string(), value.clone());
        if from.as_ref() != Some(&value) {
            self.made.push(Override { key: path.join("."), from, to: Some(value) });
        }
    }

    /// Leaves a key of a table out and records that, if it is there.
    fn leave_out(&mut self, table: &str, key: &str) {
        let Some(toml::Value::Table(inner)) = self.table.get_mut(table) else { return };
        if let Some(from) = inner.remove(key) {
            self.made.push(Override { key: format!("{table}.{key}"), from: Some(from), to: None });
        }
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint, scale: Scale) {
        self.put(&["checkpoint", "path"], checkpoint.path().to_string_lossy().into_owned());
        let Checkpoint::Made { stand_in, path } = checkpoint else { return };
        let has = |key: &str| self.table.get("checkpoint").and_then(|section| section.get(key)).is_some();
        if has("tokenizer") {
            self.put(&["checkpoint", "tokenizer"], path.to_string_lossy().into_owned());
        }
        if let (Some(toml::Value::Table(section)), Some(clip)) = (self.table.get("checkpoint"), checkpoint.archive()) {
            // Traits that the config sets for the real archive do not apply to a stand-in.
            let fixed: Vec<&str> =
                ["heads", "activation", "eps"].into_iter().filter(|key| section.contains_key(*key)).collect();
            for key in fixed {
                match key {
                    "heads" => self.put(&["checkpoint", key], clip.traits.heads),
                    "activation" => self.put(&["checkpoint", key], clip.traits.activation.to_string()),
                    _ => self.put(&["checkpoint", key], clip.traits.eps),
                }
            }
        }
        let has_size = self.table.get("checkpoint").and_then(|section| section.get("image_size")).is_some();
        if let Some(size) = stand_in.image_size().filter(|_| has_size && scale == Scale::Tiny) {
            self.put(&["checkpoint", "image_size"], size);
        }
    }

    /// Returns the batch size of the rehearsal, at most `most`, and sets it in the config if it differs.
    fn batch_size(&mut self, training: &Training, most: usize) -> usize {
        let configured = training.train.batch_size;
        if configured <= most {
            return configured;
        }
        self.put(&["train", "batch_size"], most as i64);
        if training.train.accumulate.parts() > most {
            self.put(&["train", "accumulate"], most as i64);
        }
        most
    }

    fn data(&mut self, experiment: &Experiment, own: &MadeSet, folder: &Folder) {
        let key = experiment.data.key.as_str();
        let Sizes { train, val, test, .. } = own.sizes;
        if let Some(root) = own.settings.get("root") {
            self.put(&["data", key, "root"], root.clone());
        }
        let mut subset = toml::Table::from_iter(
            [("train", train), ("test", test)].map(|(split, n)| (split.to_string(), (n as i64).into())),
        );
        if val > 0 {
            subset.insert("val".into(), (val as i64).into());
        }
        self.put(&["data", key, "subset"], subset);
        if experiment.data.cache.is_some() {
            self.put(&["data", key, "cache"], folder.own.join("cache").to_string_lossy().into_owned());
        }
        for (name, value) in &own.overrides {
            self.put(&["data", key, name], value.clone());
        }
    }

    /// Replaces a head that is read from a file by one of random weights, unless the real checkpoint is used.
    fn head(
        &mut self,
        experiment: &Experiment,
        checkpoint: &Checkpoint,
        classes: i64,
        folder: &Folder,
    ) -> Result<Option<MadeHead>> {
        let Some(clip) = checkpoint.archive() else { return Ok(None) };
        if experiment.head.spec.resolved().get("weights").is_none() {
            return Ok(None);
        }
        let path = folder.data().join("head.safetensors");
        self.put(&["head", &experiment.head.key, "weights"], path.to_string_lossy().into_owned());
        Ok(Some(MadeHead { path, classes, width: clip.image.output }))
    }

    /// Makes the training as short as a rehearsal, with what the method needs changed for so few steps.
    fn train(&mut self, training: &Training, steps: usize) {
        self.put(&["train", "epochs"], 1);
        self.put(&["train", "save_minutes"], SAVE_MINUTES);
        // A rehearsal tries what bella does, and runs no command of a config that may come from elsewhere.
        self.leave_out("train", "on_epoch");
        self.leave_out("train", "on_epoch_seconds");
        let method = &training.method;
        if method.spec.check_steps(steps).is_err() {
            for (key, value) in method.spec.shortened(steps) {
                self.put(&["method", &method.key, key], value);
            }
        }
    }
}
