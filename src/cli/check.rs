//! `bella check`: checks configs before any weight or image is read, or with `--deep` together with them, or the files of
//! runs against their hashes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use clap::Args;

use super::options::ComputeArgs;
use crate::base::small::{Usage, particles};
use crate::experiment::{Experiment, is_part, load_without, over};
use crate::machine::memory::ChunkSize;
use crate::results::verify::{Verified, verify};
use crate::schema::{Problems, Tree};
use crate::session::Settings;
use crate::train::{self, Opening};

/// The experiment over which a partial config is checked.
const BASE: (&str, &str) = ("configs/quickstart.toml", include_str!("../../configs/quickstart.toml"));

/// Check configs, or the files of all runs, and print each mistake on its own line.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella check configs/*.toml configs/*/*.toml\n  \
    bella check --merge configs/cifar10.toml configs/methods/single.toml\n  \
    bella check --deep mine.toml\n  \
    bella check --runs results")]
pub struct CheckArgs {
    /// Config files, each checked alone; one without checkpoint, head and data is a part to merge, and checked over
    /// `configs/quickstart.toml`.
    #[arg(required_unless_present = "runs")]
    files: Vec<PathBuf>,

    /// Read every file of all runs in this results folder and compare it with its hash, instead of checking configs.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["files", "merge", "sets", "print"])]
    runs: Option<PathBuf>,

    /// Merge the files left to right into one config.
    #[arg(long)]
    merge: bool,

    /// Override a key in each config.
    #[arg(short, long = "set", value_name = "KEY=VALUE", add = super::completions::of_keys())]
    sets: Vec<String>,

    /// Leave out a key in each config.
    #[arg(long = "unset", value_name = "KEY", conflicts_with = "runs", add = super::completions::of_unset_keys())]
    unsets: Vec<String>,

    /// Print the resolved config.
    #[arg(long)]
    print: bool,

    /// Also open the checkpoint, build its head, read the images and plan a training step, without training.
    #[arg(long, conflicts_with = "runs")]
    pub deep: bool,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &CheckArgs) -> Result<()> {
    if let Some(results) = &args.runs {
        return check_runs(results);
    }
    let groups: Vec<Vec<PathBuf>> =
        if args.merge { vec![args.files.clone()] } else { args.files.iter().map(|file| vec![file.clone()]).collect() };
    let mut failed: Option<Error> = None;
    for files in &groups {
        if let Err(error) = check(files, args)
            && let Some(earlier) = failed.replace(error)
        {
            super::ending::fail(&earlier);
        }
    }
    if failed.is_none() && !args.deep {
        tracing::info!("not looked at: checkpoints, heads and images; `bella check --deep` opens them, too");
    }
    failed.map_or(Ok(()), Err)
}

/// Checks one config, which is read from `files`.
fn check(files: &[PathBuf], args: &CheckArgs) -> Result<()> {
    let shown: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let shown = shown.join(" + ");
    let (tree, part) = load(files, args)?;
    let experiment = Experiment::read(&tree)?;
    if args.deep {
        if part {
            let text = format!("{shown}: is a part: give the experiment that it belongs to as well, with --merge");
            return Err(Usage(text).into());
        }
        open(&experiment, args.compute.settings()).with_context(|| shown.clone())?;
    }
    if let Some(images) = experiment.published_training_images().filter(|_| !part && !args.deep) {
        experiment.warnings(images).iter().for_each(|warning| tracing::warn!("{shown}: {warning}"));
    }
    if let Some(command) = experiment.command() {
        println!("{shown}: {command}");
    }
    println!("{shown}: {}", if part { "fine, to merge after an experiment" } else { "fine" });
    if args.print {
        print!("{}", toml::to_string(&experiment.resolved())?);
    }
    Ok(())
}

/// Opens everything that training or evaluation would open, and prints what a training step would take.
pub(super) fn open(experiment: &Experiment, settings: Settings) -> Result<()> {
    let Some(Opening { trained, held_out, cut: ChunkSize { members, images } }) = train::open(experiment, settings)?
    else {
        return Ok(());
    };
    experiment.warnings(trained).iter().for_each(|warning| tracing::warn!("{warning}"));
    let samples = experiment.data.dataset.medium();
    println!("training: {trained} {samples}, validation: {held_out} {samples}");
    println!("a step: {} x {images} {samples} go through the network at once", particles(members as i64));
    Ok(())
}

/// Prints a line for every fault; one is enough to fail.
fn check_runs(results: &Path) -> Result<()> {
    let Verified { runs, files, faults } = verify(results)?;
    faults.iter().for_each(|fault| println!("{fault}"));
    ensure!(faults.is_empty(), "{}: faults found: {} (runs: {runs}, files: {files})", results.display(), faults.len());
    println!("{}: as written (runs: {runs}, files: {files})", results.display());
    Ok(())
}

/// Returns the config of `files`, and whether it is a part, which is then merged over [`BASE`].
fn load(files: &[PathBuf], args: &CheckArgs) -> Result<(Tree, bool), Problems> {
    let tree = load_without(files, &args.sets, &args.unsets)?;
    if is_part(&tree) {
        return Ok((over(tree, Tree::parse(BASE.0, BASE.1)?), true));
    }
    Ok((tree, false))
}
