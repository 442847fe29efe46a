//! `bella rehearse`: runs a few steps of an experiment with stand-ins for its checkpoint and data, and estimates the
//! cost of the real one.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::options::{ComputeArgs, ConfigArgs};
use crate::base::outside::print_drawn;
use crate::base::small::Usage;
use crate::data::Medium;
use crate::experiment::{Experiment, NOTHING_TO_TRAIN};
use crate::machine::child::bella;
use crate::rehearse::estimate::Estimate;
use crate::rehearse::models::Shape;
use crate::rehearse::plan::Plan;
use crate::rehearse::report::Report;
use crate::rehearse::stages;
use crate::rehearse::{Options, Scale, WeightsFrom, prepare};
use crate::results::table::Surface;

/// Rehearse an experiment with stand-ins: train, save, kill, resume, evaluate, attack, report.
///
/// The checkpoint is made with random weights in its published shape, and the data sets with random images and texts in their
/// official layouts, in the folder `rehearsal` of the results folder. Every stage runs bella in its own process; the
/// report says which stages broke, and the peak memory of each. The time, disk and memory of the real experiment are
/// computed from a few steps and images. A machine that is too small is reported as refused, with the amount needed,
/// and is no failure.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella rehearse configs/cifar10.toml\n  \
    bella rehearse --tiny configs/cifar10.toml configs/methods/vbl.toml\n  \
    bella rehearse configs/cifar10.toml --then 'eval --data cifar10-c=data/CIFAR-10-C' --then soup\n  \
    scripts/reproduce_table.sh 1 --rehearse")]
pub struct RehearseArgs {
    /// TOML experiment; several merge left to right.
    #[arg(value_name = "CONFIG")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    config: ConfigArgs,

    /// Command to run on the trained run, `eval …` or `soup …`; may be repeated; '' for none [default: eval --attack
    /// fgsm --epsilon 0.01; none for texts, questions and numbers].
    #[arg(long, value_name = "COMMAND")]
    then: Vec<String>,

    /// Number of training steps.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    steps: u32,

    /// Images of each test set [default: two batches; 12 with --tiny].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    images: Option<u32>,

    /// Use a tiny model, tiny images and small batches, to test that everything runs, not what it costs.
    #[arg(long)]
    tiny: bool,

    #[arg(long, value_name = "SHAPE", value_parser = shape)]
    #[arg(help = format!("Shape of the stand-in, if the name of the checkpoint does not tell it: {}", Shape::keys().join(", ")))]
    shape: Option<Shape>,

    /// Use the config's own checkpoint, a file or a folder, if it exists.
    #[arg(long)]
    real_checkpoint: bool,

    /// Name of the rehearsal and of its folder [default: experiment, subspace and method].
    #[arg(long)]
    name: Option<String>,

    /// Keep random data and runs even if nothing broke.
    #[arg(long)]
    keep: bool,

    #[command(flatten)]
    compute: ComputeArgs,

    /// Only create the stand-ins.
    #[arg(long, hide = true)]
    prepare: bool,
}

fn shape(text: &str) -> Result<Shape> {
    Shape::of_key(text)
}

/// `words` is the command line of bella, its program included.
pub fn run(args: &RehearseArgs, words: &[OsString]) -> Result<()> {
    let configs: Vec<PathBuf> = args.files.iter().chain(&args.config.configs).cloned().collect();
    if configs.is_empty() {
        return Err(Usage("rehearse needs a config: bella rehearse configs/cifar10.toml".into()).into());
    }
    let experiment = ConfigArgs { configs, ..args.config.clone() }.read(None)?;
    let options = options(args, &experiment)?;
    // Every error of a plan is a mistake in the command line or in the config.
    let plan = Plan::new(&experiment, &options).map_err(|error| Usage(format!("{error:#}")))?;
    if args.prepare {
        let device = args.compute.settings().device;
        return prepare::prepare(&plan, &experiment, device);
    }
    plan.folder.clear()?;
    let mut preparation = bella()?;
    preparation.args(words.iter().skip(1)).arg("--prepare");
    let rehearsed = stages::run(&plan, &options, preparation)?;
    let estimate = Estimate::new(&experiment, &plan, &rehearsed, options.scale);
    let report = Report { plan: &plan, options: &options, rehearsed: &rehearsed, estimate };
    print_drawn(&report.text(Surface::of_stdout()));
    let csv = report.write()?;
    tracing::info!("rehearsals: {}, log: {}", csv.display(), plan.folder.log().display());
    let broken = report.broken();
    if let Some(first) = broken.first() {
        bail!("{}: {} of {} stages broke, first `{}`", options.name, broken.len(), rehearsed.stages.len(), first.name);
    }
    if !args.keep {
        plan.folder.tidy();
    }
    Ok(())
}

fn options(args: &RehearseArgs, experiment: &Experiment) -> Result<Options> {
    let Some(training) = &experiment.training else {
        return Err(Usage(NOTHING_TO_TRAIN.into()).into());
    };
    let usual = || format!("{}-{}-{}", experiment.name, training.subspace.key, training.method.key);
    let then = match args.then.is_empty() {
        // An empty command stands for none.
        false => args.then.iter().filter(|command| !command.is_empty()).map(|one| words(one)).collect::<Result<_>>()?,
        // Attacks change pixels, by which classes are confused.
        true if experiment.checkpoint.medium() != Medium::Images || !experiment.task.has_classes() => Vec::new(),
        true => vec![attack(training.method.spec.post_hoc().is_some_and(|method| method.output().is_some()))],
    };
    Ok(Options {
        name: args.name.clone().unwrap_or_else(usual),
        out: args.compute.out().to_path_buf(),
        steps: args.steps as usize,
        images: args.images.map(|count| count as usize),
        scale: if args.tiny { Scale::Tiny } else { Scale::True },
        shape: args.shape,
        weights: if args.real_checkpoint { WeightsFrom::RealWherePresent } else { WeightsFrom::StandIn },
        then,
        device: args.compute.device,
        threads: args.compute.threads,
        wait: args.compute.wait,
        workers: args.compute.workers,
        memory: args.compute.memory,
        trust: args.compute.trust,
    })
}

/// Returns the default evaluation. Linearised logits cannot be attacked, so a Laplace posterior is attacked with draws
/// of its weights.
fn attack(is_laplace: bool) -> Vec<String> {
    let mut words = vec!["eval", "--attack", "fgsm", "--epsilon", "0.01"];
    words.extend(if is_laplace { &["--predictive", "sampled"][..] } else { &[] });
    words.into_iter().map(String::from).collect()
}

/// Splits a command into words. Single quotes keep spaces, as in the scripts.
fn words(command: &str) -> Result<Vec<String>> {
    let (mut all, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for character in command.chars() {
        match character {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            space if space.is_whitespace() && !quoted => all.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    if quoted {
        return Err(Usage(format!("--then {command}: a quote is not closed")).into());
    }
    all.extend(word);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::described::Published;
    use crate::rehearse::models::MODELS;

    #[test]
    fn the_help_names_every_shape() {
        let help = RehearseArgs::augment_args(clap::Command::new("rehearse")).render_long_help().to_string();
        let archives = MODELS.iter().map(|model| model.key);
        for key in archives.chain(Published::keys()) {
            assert!(help.contains(key) && Shape::of_key(key).is_ok(), "{key}");
        }
    }

    #[test]
    fn commands_are_cut_into_words() {
        assert_eq!(
            words("eval --ood 'svhn=my data'  --draws 2").unwrap(),
            ["eval", "--ood", "svhn=my data", "--draws", "2"]
        );
        assert!(words("eval 'x").is_err());
    }
}
