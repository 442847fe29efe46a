//! `bella import`: makes a run of particles that were trained elsewhere.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::options::{ComputeArgs, ConfigArgs};
use crate::base::small::Usage;
use crate::exchange::Import;
use crate::hub;

/// Make a run of adapters or models that were trained elsewhere; each is a particle.
///
/// Adapters are PEFT's LoRA folders. A folder that holds several, or several folders, give several particles. Folders of
/// whole models, fine-tuned copies of the checkpoint, become full particles, or low-rank ones with --rank. The run can be
/// evaluated, attacked, averaged and exported like one that bella has trained.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella import adapters --config pets.toml\n  \
    bella import tuned-1 tuned-2 --config pets.toml --rank 8")]
pub struct ImportArgs {
    /// Folders of adapters, folders of such folders, folders of fine-tuned models, or names of them (hf://ORG/NAME).
    #[arg(required = true)]
    adapters: Vec<PathBuf>,

    /// The experiment: its name, seed, checkpoint, head and data are those of the run.
    #[command(flatten)]
    config: ConfigArgs,

    /// Compress fine-tuned models to low-rank updates of this rank.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(i64).range(1..=4096))]
    rank: Option<i64>,

    /// Write the run again if it exists.
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &ImportArgs) -> Result<()> {
    if args.config.configs.is_empty() {
        return Err(Usage("--config FILE: names the checkpoint, the head and the data of the run".into()).into());
    }
    let settings = args.compute.settings();
    let tree = args.config.tree(None)?;
    let folders = args.adapters.iter().map(|folder| hub::local(folder)).collect::<Result<Vec<PathBuf>>>()?;
    let import = Import { folders: &folders, rank: args.rank, force: args.force };
    println!("{}", import.run(tree, settings)?.path().display());
    Ok(())
}
