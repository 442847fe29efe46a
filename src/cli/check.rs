//! `bella check`: checks configs before any weight or image is read, or the files of runs against their hashes.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;

use crate::experiment::{Experiment, is_part, load_config, over};
use crate::run::{Verified, verify};
use crate::schema::{Problems, Tree};

/// The experiment over which a partial config is checked.
const BASE: (&str, &str) = ("configs/quickstart.toml", include_str!("../../configs/quickstart.toml"));

/// Check configs, or the files of all runs, and print each mistake on its own line.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella check configs/*.toml configs/*/*.toml\n  \
    bella check --merge configs/cifar10.toml configs/methods/single.toml\n  \
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
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Print the resolved config.
    #[arg(long)]
    print: bool,
}

pub fn run(args: &CheckArgs) -> Result<()> {
    if let Some(results) = &args.runs {
        return check_runs(results);
    }
    let groups: Vec<Vec<PathBuf>> =
        if args.merge { vec![args.files.clone()] } else { args.files.iter().map(|file| vec![file.clone()]).collect() };
    let mut failed: Option<Problems> = None;
    for files in &groups {
        let shown: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        match load(files, &args.sets).and_then(|(tree, role)| Ok((Experiment::read(&tree)?, role))) {
            Ok((experiment, role)) => {
                println!("{}: {role}", shown.join(" + "));
                if args.print {
                    print!("{}", toml::to_string(&experiment.resolved())?);
                }
            }
            Err(problems) => {
                if let Some(earlier) = failed.replace(problems) {
                    super::failure::print_problems(&earlier);
                }
            }
        }
    }
    failed.map_or(Ok(()), |problems| Err(problems.into()))
}

/// Prints a line for every fault; one is enough to fail.
fn check_runs(results: &Path) -> Result<()> {
    let Verified { runs, files, faults } = verify(results)?;
    faults.iter().for_each(|fault| println!("{fault}"));
    ensure!(faults.is_empty(), "{}: faults found: {} (runs: {runs}, files: {files})", results.display(), faults.len());
    println!("{}: as written (runs: {runs}, files: {files})", results.display());
    Ok(())
}

/// Returns the config of `files`, and a word for what they are.
fn load(files: &[PathBuf], sets: &[String]) -> Result<(Tree, &'static str), Problems> {
    let tree = load_config(files, sets)?;
    if is_part(&tree) {
        return Ok((over(tree, Tree::parse(BASE.0, BASE.1)?), "fine, to merge after an experiment"));
    }
    Ok((tree, "fine"))
}
