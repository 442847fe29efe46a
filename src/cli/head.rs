//! `bella head`: writes the head of a config to a file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::options::ConfigArgs;
use crate::base::files::expect_writable;
use crate::base::tensor_file::State;
use crate::machine::device::DeviceChoice;
use crate::model::Loaded;

/// Write the head of a config as safetensors (`weight` [C, d], `bias` [C]), as head.zero-shot.weights reads it.
#[derive(Args)]
#[command(after_help = "Example:\n  bella head --config cifar10.toml --to heads/cifar10.safetensors")]
pub struct HeadArgs {
    #[command(flatten)]
    config: ConfigArgs,

    /// File to write.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Device: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,

    /// Threads of libtorch [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=4096))]
    threads: Option<i32>,

    /// Load the checkpoint whatever its code calls; only for archives whose origin you know.
    #[arg(long)]
    trust: bool,
}

pub fn run(args: &HeadArgs) -> Result<()> {
    let experiment = args.config.read(None)?;
    expect_writable(&args.to)?;
    if args.trust {
        crate::model::archive::trust();
    }
    tch::set_num_threads(args.threads.unwrap_or_else(tch::get_num_threads));
    let device = args.device.open()?;
    let classes = experiment.data.dataset.classes()?;
    let head = Loaded::open(&experiment.checkpoint, &*experiment.head.spec, &classes, device)?.head;
    let mut state = State::default();
    state.put("weight", &head.weight);
    state.put("bias", &head.bias);
    state.write(&args.to)?;
    println!("{}: {} classes, {} wide", args.to.display(), head.classes(), head.weight.size()[1]);
    Ok(())
}
