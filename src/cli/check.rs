//! `bella check`: checks configs before any weight or image is read.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::experiment::{Experiment, is_part, load_config, over};
use crate::schema::{Problems, Tree};

/// The experiment over which a partial config is checked.
const BASE: (&str, &str) = ("configs/quickstart.toml", include_str!("../../configs/quickstart.toml"));

/// Check configs and print each mistake on its own line.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella check configs/*.toml configs/*/*.toml\n  \
    bella check --merge configs/cifar10.toml configs/methods/single.toml")]
pub struct CheckArgs {
    /// Config files, each checked separately. A file without checkpoint, head and data is a part to merge, and is
    /// checked over `configs/quickstart.toml`.
    #[arg(required = true)]
    files: Vec<PathBuf>,

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

/// Returns the config of `files`, and whether they are an experiment or a part of one.
fn load(files: &[PathBuf], sets: &[String]) -> Result<(Tree, &'static str), Problems> {
    let tree = load_config(files, sets)?;
    if is_part(&tree) {
        return Ok((over(tree, Tree::parse(BASE.0, BASE.1)?), "fine, to merge after an experiment"));
    }
    Ok((tree, "fine"))
}
