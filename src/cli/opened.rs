//! A run, or a checkpoint without training, opened for the commands that follow training.

mod held_out;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::failure::Usage;
use super::options::ComputeArgs;
use crate::data::DATASETS;
use crate::evaluate::{Prepared, prepare};
use crate::experiment::{Experiment, load_config};
use crate::machine::{Chunk, Precision};
use crate::posterior::{Predictive, Stored};
use crate::run::{Record, RunFolder};
use crate::schema::{Node, Tree, Value};
use crate::session::Session;

/// The settings that may differ from the run's own config.
#[derive(Args, Clone, Default)]
pub(super) struct Overrides {
    /// Another test set: KEY=ROOT, or a TOML file with a [data.*] table.
    #[arg(long, value_name = "KEY=ROOT|FILE", add = super::completions::of_data_sets())]
    pub data: Option<String>,

    /// Override a key of data.*, train.particle_chunk or train.precision.
    #[arg(short, long = "set", value_name = "KEY=VALUE", add = super::completions::of_keys())]
    pub sets: Vec<String>,

    /// Number type to compute in: f32, bf16, f64 or auto [default: as in training; f32 for a checkpoint without
    /// training].
    #[arg(long, value_name = "TYPE")]
    pub precision: Option<Precision>,
}

impl Overrides {
    /// Returns the overrides that locate the run's own data.
    fn roots(&self) -> Vec<String> {
        let is_root = |set: &&String| set.split('=').next().is_some_and(|key| key.trim_end().ends_with(".root"));
        if self.data.is_some() { Vec::new() } else { self.sets.iter().filter(is_root).cloned().collect() }
    }

    /// Returns whether the overrides keep the run's own data, apart from its location.
    fn keep_data(&self) -> bool {
        let key = |set: &str| set.split('=').next().unwrap_or_default().trim_end().to_string();
        let moves = |key: &str| [".root", ".cache"].iter().any(|end| key.ends_with(end));
        self.data.is_none() && self.sets.iter().all(|set| !key(set).starts_with("data.") || moves(&key(set)))
    }

    /// Returns the overrides that also apply to another run: the location of the data, and the number type.
    pub fn for_another_run(&self) -> Overrides {
        Overrides { data: None, sets: self.roots(), precision: self.precision }
    }
}

/// A run or checkpoint that is ready to predict.
pub(super) struct Opened {
    pub experiment: Experiment,
    pub session: Session,
    pub run: RunFolder,
    /// The posterior and the record; absent for a checkpoint without training.
    pub trained: Option<(Stored, Record)>,
    /// The overrides of the command line that locate the data.
    roots: Vec<String>,
    /// Whether the images are those of the run's own config, wherever they are stored.
    own_data: bool,
    /// The names of the run's own test sets.
    own_sets: Vec<String>,
    /// Whether the run was named by its folder.
    by_folder: bool,
}

impl Opened {
    /// Opens a finished run: the named one, or the latest.
    pub fn run(named: Option<&str>, overrides: &Overrides, compute: &ComputeArgs) -> Result<Opened> {
        let run = RunFolder::find(compute.out(), named)?;
        if !run.is_finished() {
            bail!("{}: this run is not finished: continue it with `bella train`", run.path().display());
        }
        check_sets(&overrides.sets)?;
        run.remove_temporaries();
        crate::base::logging::open_log(&run.log())?;
        tracing::info!("run: {}", run.path().display());
        let mut settings = compute.settings();
        settings.precision = overrides.precision;
        settings.out = compute.out_of(&run);
        crate::base::files::create_folder(&settings.out)?;
        let experiment = read_for_run(&run, overrides)?;
        let device = settings.device.open()?;
        let stored = run.stored(&experiment, device)?;
        let record = Record::read(&run)?;
        let session = Session::open(&experiment, settings, device, stored.classes.clone())?;
        session.check_layout(&run, &stored)?;
        let own_sets = Experiment::read_to_evaluate(&load_config(&[run.config()], &[])?)?.data.test_names();
        let (trained, roots, own_data) = (Some((stored, record)), overrides.roots(), overrides.keep_data());
        let by_folder = named.is_some_and(|named| PathBuf::from(named).join("config.toml").is_file());
        Ok(Opened { experiment, session, run, trained, roots, own_data, own_sets, by_folder })
    }

    /// Opens the checkpoint of config files without training, with the configured head.
    pub fn checkpoint(files: &[PathBuf], overrides: &Overrides, compute: &ComputeArgs) -> Result<Opened> {
        let mut experiment = read(files, overrides)?;
        experiment.training = None;
        let mut settings = compute.settings();
        settings.precision = overrides.precision;
        let run = RunFolder::of(&settings.out, &experiment)?;
        run.create(&experiment)?;
        crate::base::logging::open_log(&run.log())?;
        let classes = experiment.data.dataset.classes()?;
        let device = settings.device.open()?;
        let session = Session::open(&experiment, settings, device, classes)?;
        ensure!(
            session.model.head.training != crate::model::head::Training::Always,
            "head.linear is new and untrained: evaluate a trained run, or use [head.zero-shot] or [head.checkpoint]"
        );
        // The folder of such a run is that of the experiment with its overrides.
        let (roots, own_sets) = (overrides.roots(), experiment.data.test_names());
        Ok(Opened { experiment, session, run, trained: None, roots, own_data: true, own_sets, by_folder: false })
    }

    /// Refuses to test a trial of a sweep unless its folder was named. Test images that choose among trials no longer
    /// measure the chosen one.
    ///
    /// # Errors
    /// Fails if the run is a trial that was not named by its folder.
    pub fn check_trial(&self) -> Result<()> {
        let Some(sweep) = self.run.trial().filter(|_| !self.by_folder) else { return Ok(()) };
        let why = format!(
            "{}: a trial of the sweep {sweep}, which chooses by held-out images: testing trials would choose by test images. \
             `bella train --config` with the sweep's chosen.toml tests the chosen one; to test this one all the same, name its \
             folder: {}",
            self.run.id(),
            self.run.path().display()
        );
        Err(Usage(why).into())
    }

    /// Returns the members of a predictive; the checkpoint itself if nothing was trained.
    pub fn prepare(&self, predictive: Predictive) -> Result<Prepared<'_>> {
        match &self.trained {
            Some((stored, _)) => prepare(predictive, self.session.subspace()?, &stored.posterior, self.experiment.seed),
            None => Ok(Prepared::Checkpoint),
        }
    }

    /// Returns the number of members that go through the network at once, from the run's config or the command line.
    pub fn chunk(&self) -> Chunk {
        self.experiment.particle_chunk()
    }

    /// Returns the trained posterior, with its class names and file hashes.
    pub fn stored(&self) -> Result<&Stored> {
        let trained = self.trained.as_ref().map(|(stored, _)| stored);
        trained.context("this is a checkpoint as it is: it has no posterior; name a trained run")
    }

    pub fn record(&self) -> Option<&Record> {
        self.trained.as_ref().map(|(_, record)| record)
    }

    /// Returns the number of images per forward pass: that of the command line, or else of the config.
    pub fn batch_size(&self, asked: Option<u32>) -> usize {
        asked.map_or(self.experiment.eval_batch_size(), |size| size as usize)
    }

    /// Returns whether predictions on a set of this name may be the first to use the plain names of their files.
    pub fn names_files(&self, set: &str) -> bool {
        self.own_data || !self.own_sets.iter().any(|own| own == set)
    }
}

fn check_sets(sets: &[String]) -> Result<()> {
    let of_no_number = ["data.", "checkpoint.path=", "train.particle_chunk", "train.precision"];
    let other = sets.iter().find(|set| !of_no_number.iter().any(|start| set.starts_with(start)));
    if let Some(set) = other {
        let why = format!(
            "--set {set}: a run's settings are what it was trained with; only data.*, checkpoint.path, \
             train.particle_chunk and train.precision can be set"
        );
        return Err(Usage(why).into());
    }
    Ok(())
}

/// Reads the experiment of a run, with the test set that the command line asks for.
fn read_for_run(run: &RunFolder, overrides: &Overrides) -> Result<Experiment> {
    let files = [run.config()];
    if overrides.data.is_some() {
        return read(&files, overrides);
    }
    let mut tree = load_config(&files, &overrides.sets)?;
    let changed = overrides.sets.iter().any(|set| set.starts_with("data."));
    if changed && !overrides.sets.iter().any(|set| set.contains(".label=")) {
        forget_label(&mut tree.root);
    }
    Ok(Experiment::read_to_evaluate(&tree)?)
}

/// Reads the experiment of config files, with the test set that the command line asks for.
fn read(files: &[PathBuf], overrides: &Overrides) -> Result<Experiment> {
    let Some(data) = &overrides.data else {
        return Ok(Experiment::read_to_evaluate(&load_config(files, &overrides.sets)?)?);
    };
    let (of_data, others): (Vec<String>, Vec<String>) =
        overrides.sets.iter().cloned().partition(|set| set.starts_with("data."));
    let mut tree = load_config(files, &others)?;
    replace_data(&mut tree, data, of_data)?;
    Ok(Experiment::read_to_evaluate(&tree)?)
}

/// Reads the experiment of a run on another data set, given as `KEY=ROOT` or a TOML file.
pub(super) fn on_other_data(run: &RunFolder, data: &str) -> Result<Experiment> {
    let mut tree = load_config(&[run.config()], &[])?;
    replace_data(&mut tree, data, vec![])?;
    Ok(Experiment::read_to_evaluate(&tree)?)
}

fn replace_data(tree: &mut Tree, data: &str, sets: Vec<String>) -> Result<()> {
    let (Value::Table(all), Value::Table(mut new)) = (&mut tree.root.value, data_table(data, sets)?.root.value) else {
        unreachable!("the root of a config is a table")
    };
    match new.remove("data") {
        Some(table) => drop(all.insert("data".into(), table)),
        None => return Err(Usage(format!("{data}: the file has no [data.*] table")).into()),
    }
    Ok(())
}

/// Reads the config for `KEY=ROOT` or a file, with the overrides of `data.*`.
pub(super) fn data_table(data: &str, mut sets: Vec<String>) -> Result<Tree> {
    let Some((key, root)) = data.split_once('=') else {
        return Ok(load_config(&[PathBuf::from(data)], &sets)?);
    };
    let known: Vec<&str> = DATASETS.iter().map(|entry| entry.key).collect();
    if !known.contains(&key) {
        return Err(Usage(format!("{data}: unknown data set `{key}`; known: {}", known.join(", "))).into());
    }
    if root.is_empty() {
        return Err(Usage(format!("{data}: names no folder behind `=`")).into());
    }
    let root = std::path::absolute(root).with_context(|| format!("{key}={root}: no path"))?;
    sets.insert(0, format!("data.{key}.root={}", toml::Value::from(root.to_string_lossy().into_owned())));
    Ok(load_config(&[], &sets)?)
}

/// Removes the stored name of a test set that has been changed, so that its results get their own row.
fn forget_label(root: &mut Node) {
    let Value::Table(all) = &mut root.value else { return };
    if let Some(Value::Table(sets)) = all.get_mut("data").map(|node| &mut node.value) {
        sets.values_mut().for_each(|set| forget(set, &["label"]));
    }
}

/// Removes the value at `path`, if there is one.
pub(super) fn forget(node: &mut Node, path: &[&str]) {
    let Value::Table(table) = &mut node.value else { return };
    match path {
        [] => {}
        [last] => drop(table.remove(*last)),
        [first, rest @ ..] => table.get_mut(*first).into_iter().for_each(|inner| forget(inner, rest)),
    }
}
