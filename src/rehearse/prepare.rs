//! Makes the stand-ins of a plan in a process of its own, so that its memory is measured like that of any other stage
//! and does not count towards the following processes. Before gigabytes are written for a language network, the disk and the memory
//! of this machine are checked; the messages name the amount that is needed, which a rehearsal reports as a refusal.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use super::checkpoint::{Checkpoint, StandIn};
use super::evaluations::data_file;
use super::folder::FolderStandIn;
use super::models::random_weight;
use super::plan::{MadeHead, Plan};
use super::sizes::{TrainingPart, classes_of};
use crate::base::files::{create_folder, write_atomic};
use crate::experiment::Experiment;
use crate::machine::device::{DeviceChoice, compute_kind};
use crate::machine::memory::{free_bytes, gib};
use crate::model::archive::write::write;
use crate::model::described::laid_out;
use crate::model::kind::Size;
use crate::train::chunks::{Images, Step};

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
                check(folder, path, plan, experiment, device)?;
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

/// Checks that the stand-in `folder` fits on the disk at `path`, and a training step on it in memory.
///
/// # Errors
/// Fails with the amount that is needed where it does not fit, or if the config does not fit the network.
pub fn check(
    folder: &FolderStandIn,
    path: &Path,
    plan: &Plan,
    experiment: &Experiment,
    device: DeviceChoice,
) -> Result<()> {
    let device = device.open()?;
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    let kind = compute_kind(training.train.precision, device).context("train.precision")?;
    // A tiny network takes a few MB, and its training plans its own memory.
    if folder.size == Size::Published {
        check_reading(folder, experiment, device, kind)?;
        check_step(folder, experiment, plan.training, device, kind)?;
    }
    if path.is_dir() { Ok(()) } else { check_disk(folder, path) }
}

fn check_disk(folder: &FolderStandIn, path: &Path) -> Result<()> {
    let place = path.parent().unwrap_or(Path::new("."));
    let free =
        fs4::available_space(place).with_context(|| format!("{}: cannot tell its free space", place.display()))?;
    let needed = folder.bytes()?;
    ensure!(
        needed <= free,
        "{}: the stand-in of {} needs {:.1} GiB on the disk, but {:.1} GiB is free: give another --out, or --tiny",
        place.display(),
        folder.published.about,
        gib(needed),
        gib(free)
    );
    Ok(())
}

/// Checks that the weights can be read. On the CPU they become the computed ones one after the other.
fn check_reading(folder: &FolderStandIn, experiment: &Experiment, device: Device, kind: Kind) -> Result<()> {
    let Some(free) = free_bytes(Device::Cpu) else { return Ok(()) };
    let quantize = experiment.checkpoint.quantize;
    let computed = match device == Device::Cpu {
        true => folder.described(None)?.stored_base(kind, quantize)?.bytes(kind),
        false => 0,
    };
    let needed = folder.reading_bytes(quantize)?.max(computed);
    ensure!(
        needed <= free,
        "reading the weights of {} needs {:.1} GiB of memory, but {:.1} GiB is free: use a machine with more memory, or --tiny",
        folder.published.about,
        gib(needed),
        gib(free)
    );
    Ok(())
}

/// Plans a training step beside the frozen weights, as training itself will.
fn check_step(
    folder: &FolderStandIn,
    experiment: &Experiment,
    part: TrainingPart,
    device: Device,
    kind: Kind,
) -> Result<()> {
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    let described = folder.described(experiment.checkpoint.max_tokens)?.read_by(experiment.checkpoint.features);
    let base = described.stored_base(kind, experiment.checkpoint.quantize)?;
    let weights = base.bytes(kind);
    let classes = classes_of(&*experiment.data.dataset);
    let head = experiment.head.spec.outline(classes as i64, described.network.feature_width());
    let model = laid_out(described.network.reading(head.training.rows()), base, head, device, kind);
    let subspace = training.subspace.spec.build(&*model.network, &model.base, &model.head)?;
    let images = Images { train: part.images - part.held_out, validation: part.held_out };
    let step = Step::of(training, &model, subspace.layout(), images);
    Step { coming: step.coming + weights, ..step }.plan().map(drop)
}
