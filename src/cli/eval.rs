//! `bella eval`: a trained run, or a checkpoint as it is, on a test set, clean or corrupted.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::{ComputeArgs, ConfigArgs, Usage};
use crate::config::tree::{Node, Value};
use crate::config::{Experiment, Tree};
use crate::data::SplitName;
use crate::data::corruptions::Applied;
use crate::evaluate::{Evaluation, experiment_csv};
use crate::files::create_folder;
use crate::images::ImageSet;
use crate::predict::Members;
use crate::results::store::Row;
use crate::run::{Record, RunFolder};
use crate::session::{Posterior, Session, check_classes};

/// Evaluate a trained run, or with --config alone a checkpoint as it is.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella eval                                     # the latest run, its own test split\n  \
    bella eval low-rank-svgd-s1 --data image-folder=photos --corrupt gaussian-noise:3\n  \
    bella eval --config configs/quickstart.toml    # the checkpoint before any training"
)]
pub struct EvalArgs {
    /// A run: its folder or (the start of) its id [default: the latest finished run].
    run: Option<String>,

    #[command(flatten)]
    config: ConfigArgs,

    /// Another test set: KEY=ROOT, or a TOML file with a [data.*] table.
    #[arg(long, value_name = "KEY=ROOT|FILE")]
    data: Option<String>,

    /// Which split: train, val or test.
    #[arg(long, default_value = "test")]
    split: SplitName,

    /// Corruptions made by bella, as KIND:SEVERITY (see `bella list`); the clean set is evaluated only without this.
    #[arg(long, value_name = "KIND:SEVERITY", value_delimiter = ',')]
    corrupt: Vec<String>,

    /// Images a forward.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_size: Option<u32>,

    #[command(flatten)]
    compute: ComputeArgs,
}

pub fn run(args: &EvalArgs) -> Result<()> {
    if args.run.is_some() && !args.config.configs.is_empty() {
        return Err(Usage("give a run or --config, not both: a run knows its config".into()).into());
    }
    let conditions = conditions(&args.corrupt)?;
    if args.config.configs.is_empty() { trained(args, conditions) } else { untrained(args, conditions) }
}

/// A finished run.
fn trained(args: &EvalArgs, conditions: Vec<Option<Applied>>) -> Result<()> {
    let run = RunFolder::find(&args.compute.out, args.run.as_deref())?;
    if !run.is_finished() {
        anyhow::bail!("{}: this run is not finished: continue it with `bella train`", run.path().display());
    }
    for set in &args.config.sets {
        let how_it_computes = ["data.", "train.particle_chunk", "train.precision"];
        if !how_it_computes.iter().any(|start| set.starts_with(start)) {
            let why = format!(
                "--set {set}: a run's settings are what it was trained with; eval takes data.*, train.particle_chunk and \
                 train.precision"
            );
            return Err(Usage(why).into());
        }
    }
    crate::logging::open_log(&run.log())?;
    let settings = args.compute.settings();
    create_folder(&settings.out)?;
    let experiment = read(args, &[run.config()])?;
    let device = settings.device.open()?;
    let posterior = Posterior::read(&run.posterior(), device)?;
    posterior.check_files(&experiment)?;
    let record = Record::read(&run)?;
    let session = Session::open(&experiment, settings, device, posterior.classes.clone())?;
    let chunk = experiment.training.as_ref().map_or(0, |t| t.train.particle_chunk);
    let theta = &posterior.theta;
    let members = || -> Result<Members> { Ok(Members::Rows { subspace: session.subspace()?, theta, chunk }) };
    evaluate_all(args, conditions, &experiment, &session, &run, Some(&record), &members)
}

/// The checkpoint as it is, with the configured head.
fn untrained(args: &EvalArgs, conditions: Vec<Option<Applied>>) -> Result<()> {
    let mut experiment = read(args, &args.config.configs)?;
    experiment.training = None;
    let settings = args.compute.settings();
    let run = RunFolder::of(&settings.out, &experiment)?;
    run.create(&experiment)?;
    crate::logging::open_log(&run.log())?;
    let classes = experiment.data.dataset.classes()?;
    let device = settings.device.open()?;
    let session = Session::open(&experiment, settings, device, classes)?;
    anyhow::ensure!(
        session.model.head.training != crate::head::Training::Always,
        "head.linear is new and untrained: evaluate a trained run, or use [head.zero-shot] or [head.checkpoint]"
    );
    evaluate_all(args, conditions, &experiment, &session, &run, None, &|| Ok(Members::Checkpoint))
}

/// The experiment with the test set that the command line asks for.
fn read(args: &EvalArgs, files: &[PathBuf]) -> Result<Experiment> {
    let Some(data) = &args.data else {
        let mut tree = Tree::load(files, &args.config.sets)?;
        let (of_data, named) = (|set: &String| set.starts_with("data."), |set: &String| set.contains(".label="));
        if args.config.configs.is_empty() && args.config.sets.iter().any(of_data) && !args.config.sets.iter().any(named)
        {
            forget_label(&mut tree.root);
        }
        return Ok(Experiment::read(&tree)?);
    };
    let (of_data, others): (Vec<String>, Vec<String>) =
        args.config.sets.iter().cloned().partition(|set| set.starts_with("data."));
    let mut tree = Tree::load(files, &others)?;
    // The old set's settings do not describe the new one, and which epoch to take is settled.
    forget(&mut tree.root, &["train", "select"]);
    let (Value::Table(all), Value::Table(mut new)) = (&mut tree.root.value, data_table(data, of_data)?.root.value)
    else {
        unreachable!("the root of a config is a table")
    };
    match new.remove("data") {
        Some(table) => drop(all.insert("data".into(), table)),
        None => return Err(Usage(format!("--data {data}: the file has no [data.*] table")).into()),
    }
    Ok(Experiment::read(&tree)?)
}

/// The config that `--data` stands for: KEY=ROOT or a file, with the overrides of `data.*`.
fn data_table(data: &str, mut sets: Vec<String>) -> Result<Tree> {
    let Some((key, root)) = data.split_once('=') else {
        return Ok(Tree::load(&[PathBuf::from(data)], &sets)?);
    };
    let root = std::path::absolute(root).with_context(|| format!("--data {key}={root}"))?;
    sets.insert(0, format!("data.{key}.root={}", toml::Value::from(root.to_string_lossy().into_owned())));
    Ok(Tree::load(&[], &sets)?)
}

/// Removes the stored name of a test set that has been changed, so that its results get a row of their own.
fn forget_label(root: &mut Node) {
    let Value::Table(all) = &mut root.value else { return };
    if let Some(Value::Table(sets)) = all.get_mut("data").map(|node| &mut node.value) {
        sets.values_mut().for_each(|set| forget(set, &["label"]));
    }
}

/// Removes the value at `path`, if there is one.
fn forget(node: &mut Node, path: &[&str]) {
    let Value::Table(table) = &mut node.value else { return };
    match path {
        [] => {}
        [last] => drop(table.remove(*last)),
        [first, rest @ ..] => table.get_mut(*first).into_iter().for_each(|inner| forget(inner, rest)),
    }
}

fn evaluate_all<'a>(
    args: &EvalArgs,
    conditions: Vec<Option<Applied>>,
    experiment: &'a Experiment,
    session: &'a Session,
    run: &'a RunFolder,
    record: Option<&'a Record>,
    members: &dyn Fn() -> Result<Members<'a>>,
) -> Result<()> {
    check_classes(&session.classes, &experiment.data.dataset.classes()?)?;
    let split = session.load(experiment, args.split)?;
    let configured = experiment.training.as_ref().map_or(256, |t| t.train.eval_batch_size);
    let mut rows: Vec<Row> = Vec::new();
    for corruption in conditions {
        let images = match corruption {
            Some(applied) => split.images.corrupted(applied)?,
            None => split.images.clone(),
        };
        let images = ImageSet::new(split.with_images(images), session.device, session.settings.workers)?;
        let evaluation = Evaluation {
            experiment,
            session,
            run,
            record,
            members: members()?,
            batch_size: args.batch_size.map_or(configured, |size| size as usize),
            set: set_name(experiment, args.split),
            condition: corruption.map_or("clean".to_string(), |applied| format!("{applied} (bella)")),
        };
        rows.push(evaluation.run(&images)?);
    }
    super::report::print_rows(&rows);
    let csv = experiment_csv(&session.settings.out, &experiment.name);
    tracing::info!("results: {}", csv.display());
    Ok(())
}

/// The corruptions asked for, or the clean set.
fn conditions(words: &[String]) -> Result<Vec<Option<Applied>>> {
    if words.is_empty() {
        return Ok(vec![None]);
    }
    // One noise for every run and seed, so that their results can be compared image by image.
    const SEED: u64 = 0;
    let parse = |word: &String| match Applied::parse(word, SEED) {
        Ok(applied) => Ok(Some(applied)),
        Err(error) => Err(Usage(format!("--corrupt: {error}")).into()),
    };
    words.iter().map(parse).collect()
}

/// `cifar10` for the test split, `cifar10-train` for another.
fn set_name(experiment: &Experiment, split: SplitName) -> String {
    match split {
        SplitName::Test => experiment.data.label.clone(),
        other => format!("{}-{other}", experiment.data.label),
    }
}
