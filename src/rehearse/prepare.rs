//! Makes the stand-ins of a plan in a process of its own, so that its memory is measured like that of any other stage
//! and does not count towards the following processes.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use super::checkpoint::{Checkpoint, StandIn};
use super::evaluations::data_file;
use super::models::random_weight;
use super::plan::{MadeHead, Plan};
use super::room;
use crate::base::files::{create_folder, write_atomic};
use crate::experiment::Experiment;
use crate::machine::device::DeviceChoice;
use crate::model::archive::write::write;

/// The seed of random weights.
const SEED: i64 = 1;

/// Writes the checkpoint, the head, the data sets and the config of a plan. An existing stand-in of a checkpoint is
/// used again, since only complete files have its name.
///
/// # Errors
/// Fails if a file cannot be written, if memory runs out, or if this machine is too small for a language network.
pub fn prepare(plan: &Plan, experiment: &Experiment, device: DeviceChoice) -> Result<()> {
    create_folder(&plan.folder.data())?;
    if let Checkpoint::Made { stand_in, path } = &plan.checkpoint {
        create_folder(&plan.folder.checkpoints())?;
        match stand_in {
            StandIn::Archive { clip, .. } if !path.is_file() => {
                tch::manual_seed(SEED);
                write(path, &clip.blueprint(), random_weight)?;
            }
            StandIn::Archive { .. } => {}
            StandIn::Folder(folder) => {
                room::check(folder, path, (plan, experiment), device)?;
                folder.write(path)?;
            }
        }
        tracing::info!("checkpoint: {} with random weights, {}", stand_in.about(), path.display());
    }
    plan.head.as_ref().map_or(Ok(()), write_head)?;
    for (number, made) in plan.sets.iter().enumerate() {
        made.write()?;
        tracing::info!("{}: a stand-in in {}", made.key, made.root.display());
        if number > 0 {
            let file = made.root.with_extension("toml");
            write_text(&file, &data_file(made)?)?;
        }
    }
    write_text(&plan.folder.config(), &toml::to_string(&plan.config)?)
}

fn write_head(head: &MadeHead) -> Result<()> {
    tch::manual_seed(SEED);
    let weight = Tensor::randn([head.classes, head.width], (Kind::Float, Device::Cpu));
    let path = head.path.display();
    Tensor::write_safetensors(&[("weight", weight)], &head.path).map_err(|error| anyhow::anyhow!("{path}: {error}"))
}

fn write_text(path: &std::path::Path, text: &str) -> Result<()> {
    write_atomic(path, |file| {
        use std::io::Write;
        Ok(file.write_all(text.as_bytes())?)
    })
}
