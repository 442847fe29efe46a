//! Estimates the cost of the real experiment on this machine: the measured seconds, bytes and peaks of memory, scaled
//! to the published numbers of images, epochs and steps.

use std::path::Path;

use super::Scale;
use super::checkpoint::Checkpoint;
use super::evaluations::Counted;
use super::plan::Plan;
use super::sizes::{Real, official};
use super::stages::{Kind, Outcome, Rehearsed, Stage};
use crate::data::SplitName;
use crate::experiment::{Experiment, Validation};
use crate::model::described::Described;
use crate::model::{CheckpointSpec, Normalize, folder};
use crate::schema::Tree;

/// The largest number of bytes of decoded images that are kept in memory.
pub const KEPT_IN_MEMORY: u64 = 2 << 30;

/// The estimated cost of the real experiment; unknown values are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    pub step_seconds: Option<f64>,
    /// The seconds for one test image on all members.
    pub image_seconds: Option<f64>,
    pub steps: Option<usize>,
    pub training_seconds: Option<f64>,
    /// The seconds of the test sets and all further evaluations.
    pub evaluation_seconds: Option<f64>,
    /// The bytes of the checkpoint, the posterior, the resume file and the predictions.
    pub disk_bytes: Option<u64>,
    pub memory_bytes: Option<u64>,
}

impl Estimate {
    /// Returns the seconds of training and evaluations together.
    pub fn total_seconds(&self) -> Option<f64> {
        self.training_seconds.zip(self.evaluation_seconds).map(|(training, evaluation)| training + evaluation)
    }

    /// Estimates the cost of an experiment from its rehearsal. A rehearsal with a tiny model tells only the number of
    /// steps.
    pub fn new(experiment: &Experiment, plan: &Plan, rehearsed: &Rehearsed, scale: Scale) -> Estimate {
        let real = Real::of(experiment);
        if scale == Scale::Tiny {
            return Estimate { steps: real.map(|real| real.steps), ..Estimate::default() };
        }
        let trained = rehearsed.training.as_ref();
        let own = Counted::own(experiment, plan.test_images);
        let evaluate = rehearsed.stages.iter().find(|stage| stage.kind == Kind::Evaluate).filter(|s| is_fine(s));
        let more = more_rows(experiment, plan);
        let image_seconds = evaluate.map(|stage| more * work(stage) / own.images as f64);
        let step_seconds = trained.and_then(|trained| trained.step_seconds);
        let training_seconds =
            real.zip(trained).zip(step_seconds.zip(image_seconds)).map(|((real, trained), (step, image))| {
                let after = trained.after_seconds * scaled(real.train, plan.training.images);
                real.steps as f64 * step + (real.epochs * real.validation) as f64 * image + after
            });
        let disk_bytes = trained.zip(own.official).map(|(trained, official)| {
            let predictions = trained.prediction_bytes as f64 * scaled(official, own.images);
            let of_rows = (trained.posterior_bytes + trained.resume_bytes) as f64 + predictions;
            checkpoint_bytes(plan.checkpoint.path()) + (more * of_rows) as u64
        });
        Estimate {
            step_seconds,
            image_seconds,
            steps: real.map(|real| real.steps),
            training_seconds,
            evaluation_seconds: evaluations(plan, rehearsed, own, more),
            disk_bytes,
            memory_bytes: memory(experiment, plan, rehearsed, more),
        }
    }
}

/// Returns how many times as many rows the real posterior has as that of the rehearsal, whose few steps keep fewer states of a chain.
fn more_rows(experiment: &Experiment, plan: &Plan) -> f64 {
    let rows = |experiment: &Experiment, steps: usize| {
        experiment.training.as_ref().map(|training| training.method.spec.rows_after(steps) as f64)
    };
    let text = toml::to_string(&plan.config).unwrap_or_default();
    let rehearsed = Tree::parse("rehearsal", &text).and_then(|tree| Experiment::read(&tree)).ok();
    let rows = Real::of(experiment)
        .and_then(|real| rows(experiment, real.steps))
        .zip(rehearsed.and_then(|made| rows(&made, plan.training.steps)));
    rows.map_or(1.0, |(real, made)| real / made)
}

fn scaled(official: usize, made: usize) -> f64 {
    official as f64 / made.max(1) as f64
}

fn is_fine(stage: &Stage) -> bool {
    stage.outcome == Outcome::Fine
}

/// Returns the seconds of a stage that grow with its number of images.
fn work(stage: &Stage) -> f64 {
    stage.seconds - stage.startup.unwrap_or(0.0)
}

/// Returns the seconds of all evaluations, each scaled to its official number of images and to `more` times as many rows; `None` if one of these numbers
/// is unknown, or if an evaluation failed or was not reached.
fn evaluations(plan: &Plan, rehearsed: &Rehearsed, own: Counted, more: f64) -> Option<f64> {
    let mut total = 0.0;
    if !rehearsed.stages.iter().any(|stage| stage.kind == Kind::Evaluate) {
        return None;
    }
    for stage in &rehearsed.stages {
        let Counted { images, official } = match stage.kind {
            Kind::Evaluate => own,
            Kind::Then(number) => plan.evaluations[number].count,
            _ => continue,
        };
        if !is_fine(stage) {
            return None;
        }
        total += stage.startup.unwrap_or(0.0) + more * work(stage) * scaled(official?, images);
    }
    Some(total)
}

/// Returns the highest peak of memory, including the images of the real sets that bella keeps in memory.
fn memory(experiment: &Experiment, plan: &Plan, rehearsed: &Rehearsed, more: f64) -> Option<u64> {
    let peak = |kinds: &[Kind]| {
        let stages = rehearsed.stages.iter().filter(|stage| kinds.contains(&stage.kind));
        stages.filter_map(|stage| stage.peak_bytes).max()
    };
    let dataset = &*experiment.data.dataset;
    let image = image_bytes(experiment, plan)?;
    let kept = |images: usize, made: usize| {
        let bytes = images as u64 * image;
        let is_kept = dataset.resize().is_none() || bytes <= KEPT_IN_MEMORY;
        if is_kept { bytes.saturating_sub(made as u64 * image) } else { 0 }
    };
    let val = match experiment.data.validation {
        Validation::Published => official(dataset, SplitName::Val)?,
        Validation::HeldOut(_) => 0,
    };
    let real = Real::of(experiment)?;
    let training = peak(&[Kind::Train, Kind::Resume])? + kept(real.train, plan.training.images) + kept(val, 0);
    let Counted { images: made, official: test } = Counted::own(experiment, plan.test_images);
    let logits =
        rehearsed.training.as_ref().map_or(0.0, |trained| trained.prediction_bytes as f64 / made.max(1) as f64);
    let logits = (more * logits) as u64;
    let evaluation = peak(&[Kind::Evaluate])? + kept(test?, made) + logits * test? as u64;
    Some(training.max(evaluation))
}

/// Returns the bytes of a checkpoint: of its file, or of the files of its folder.
pub fn checkpoint_bytes(path: &Path) -> u64 {
    let files = folder::content(path).unwrap_or_default();
    files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Returns the bytes of an image in memory, at its stored size or decoded to the network's size, if that is known.
fn image_bytes(experiment: &Experiment, plan: &Plan) -> Option<u64> {
    let side = match (experiment.data.dataset.resize(), experiment.checkpoint.image_size, &plan.checkpoint) {
        (None, ..) => i64::from(plan.sets[0].side),
        (Some(_), Some(size), _) => size,
        (Some(_), None, Checkpoint::Made { stand_in, .. }) => stand_in.image_size()?,
        // The image size of a real archive is known only to the child process that read it.
        (Some(_), None, Checkpoint::Real(path)) => folder_side(experiment, path)?,
    };
    Some((3 * side * side) as u64)
}

/// Returns the number of pixels per side that the folder of a network with eyes tells.
fn folder_side(experiment: &Experiment, path: &Path) -> Option<i64> {
    let CheckpointSpec { kind, max_tokens, .. } = experiment.checkpoint;
    Described::of(path, kind, max_tokens, Normalize::CLIP).ok()?.network.image_side()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Wait;
    use crate::machine::device::DeviceChoice;
    use crate::rehearse::{Options, WeightsFrom};

    /// Returns how many times as many rows the posterior of a config with this method has as that of its rehearsal in two steps.
    fn more(method: &str) -> f64 {
        let text = format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = \"nowhere/clip-mini.pt\"\nnormalize = \"clip\"\n[head.zero-shot]\n\
             weights = \"h\"\n[data.cifar10]\nroot = \"d\"\nvalidation = 0.2\n[subspace.low-rank]\nrank = 4\n{method}\n[train]\n\
             epochs = 2\nbatch_size = 100\n"
        );
        let experiment = Experiment::read(&Tree::parse("x.toml", &text).unwrap()).unwrap();
        let options = Options {
            name: "x".into(),
            out: "nowhere".into(),
            steps: 2,
            images: None,
            scale: Scale::True,
            shape: None,
            weights: WeightsFrom::StandIn,
            then: Vec::new(),
            device: DeviceChoice::Cpu,
            threads: None,
            wait: Wait::Auto,
            workers: None,
            memory: None,
            trust: false,
        };
        more_rows(&experiment, &Plan::new(&experiment, &options).unwrap())
    }

    /// The real training keeps 20 states in its 800 steps, and the rehearsal one in each of its two.
    #[test]
    fn a_rehearsed_chain_stands_for_the_states_of_the_real_one() {
        let chain = "[method.sgld]\nlr = 1e-3\ness = 4e4\nstart = 400\nevery = 10\n[optimizer.none]";
        assert_eq!(more(chain), 10.0);
        assert_eq!(more("[method.ensemble]\nparticles = 3\n[optimizer.adamw]\nlr = 1e-3"), 1.0);
    }
}
