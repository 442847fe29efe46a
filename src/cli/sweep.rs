//! `bella sweep`: searches for settings by held-out images.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Result;
use clap::Args;

use super::ending;
use super::ending::Stopped;
use super::options::ComputeArgs;
use super::train::{self, TrainArgs};
use crate::base::outside::print_drawn;
use crate::base::small::{Usage, push_new};
use crate::experiment::{full_key, load_without, may_be_short};
use crate::machine::device::DeviceChoice;
use crate::machine::memory;
use crate::machine::parallel::ProcessGroup;
use crate::results::table::{Spec, Surface, render};
use crate::sweep::jobs::{Share, cores_each};
use crate::sweep::ledger;
use crate::sweep::search::{Outcome, Request, Search};
use crate::sweep::space::{Axis, Values};
use crate::sweep::trial::{Base, Refused};

/// Search for settings by held-out images, and write down what was tried and what was chosen.
///
/// Trials are compared by the NLL of held-out images, or by the metric that `train.select_by` names. Every trial is a run of its own. They train for a few epochs, the better ones for longer (successive halving), and the
/// last ones to the end. Test images are never read. The same command goes on after any interruption, and shares the trials
/// with processes that run it at the same time.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    bella sweep my.toml --over method.svgd.gamma=0.01,0.1 --over optimizer.adamw.lr=1e-3,3e-3 --jobs 2\n  \
    bella sweep my.toml --over optimizer.adamw.lr=1e-5..1e-2 --over train.clip_norm=uniform:0.5..2 --budget 27\n  \
    bella sweep my.toml --over lr=1e-4..1e-2 --budget 9 --packed    # nine trials in each pass through the network\n  \
    bella train --config results/sweeps/my-0123456789/chosen.toml    # the chosen run, evaluated on the test split")]
pub struct SweepArgs {
    /// TOML experiment; several merge left to right.
    #[arg(required = true, value_name = "CONFIG")]
    configs: Vec<PathBuf>,

    /// Key and values to try: KEY=A,B,… (every combination), KEY=LOW..HIGH (drawn, uniform in the logarithm) or
    /// KEY=uniform:LOW..HIGH; may be repeated. With seed=1,2,3, the chosen settings are trained and tested with these seeds
    /// afterwards.
    #[arg(long, required = true, value_name = "KEY=VALUES", add = super::completions::of_keys())]
    over: Vec<Axis>,

    /// Most trials: a larger grid is cut down to this many at random, and ranges give this many draws [default: the
    /// whole grid].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    budget: Option<u32>,

    /// One in this many trials goes on after each rung; 1 trains all of them to the end.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    halving: u32,

    /// Seed of the draws.
    #[arg(long, value_name = "SEED", default_value = "0")]
    search_seed: u64,

    /// Trials at a time, each with its share of the cores and of the memory (of --memory, too), and on a GPU of its own where there are
    /// GPUs.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,

    /// Train the trials of a rung together: their particles are rows of one matrix, which share the passes through the network. They may
    /// differ in the optimizer, in the method's keys but `particles`, and in those of [train] that act on a trial alone.
    #[arg(long, conflicts_with = "jobs")]
    packed: bool,

    /// Override a key in every trial: `--set train.epochs=3`.
    #[arg(short, long = "set", value_name = "KEY=VALUE", add = super::completions::of_keys())]
    sets: Vec<String>,

    /// Leave out a key of the files in every trial: `--unset train.clip_norm`.
    #[arg(long = "unset", value_name = "KEY", add = super::completions::of_unset_keys())]
    unsets: Vec<String>,

    /// Print the trials and when they are judged, and train nothing.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    compute: ComputeArgs,
}

pub fn run(args: &SweepArgs) -> Result<()> {
    let (axes, seeds) = args.axes_and_seeds()?;
    let mut search = args.search(axes)?;
    let commands: BTreeSet<String> = search.trials.iter().filter_map(|trial| trial.experiment.command()).collect();
    commands.iter().for_each(|command| tracing::info!("{command}"));
    if args.dry_run {
        print_plan(&search);
        if !seeds.is_empty() {
            println!("then the chosen settings with {} seeds, on the test split", seeds.len());
        }
        return Ok(());
    }
    if args.packed && seeds.len() > 1 {
        let trial = &search.trials[0].experiment;
        trial.check_packed_seeds().map_err(|why| Usage(format!("--packed with --over seed: {why}")))?;
    }
    let share = share(args)?;
    let at_a_time = if args.packed { "all".to_string() } else { share.devices.len().to_string() };
    tracing::info!(
        "{} trials, {at_a_time} at a time with {} threads each; tried settings: {}",
        search.trials.len(),
        share.threads,
        search.ledger.trials().display()
    );
    let stop = ending::stop(&ProcessGroup::alone())?;
    let outcome = search.run(&share, &stop);
    print_table(&search);
    match outcome? {
        Outcome::Chosen(at) => announce(&search, at, seeds.is_empty()),
        Outcome::Stopped => {
            return Err(Stopped("stopped; every trial is saved: the same command goes on".into()).into());
        }
    }
    if seeds.is_empty() {
        return Ok(());
    }
    train::run(
        &TrainArgs::with_seeds(search.ledger.chosen(), seeds, args.packed, args.compute.clone()),
        Rc::new(ProcessGroup::alone()),
    )
}

impl SweepArgs {
    /// Plans the search along axes.
    fn search(&self, axes: Vec<Axis>) -> Result<Search> {
        let request = Request {
            base: Base { configs: self.configs.clone(), sets: self.sets.clone(), unsets: self.unsets.clone() },
            axes,
            budget: self.budget.map(|budget| budget as usize),
            seed: self.search_seed,
            factor: self.halving as usize,
            packed: self.packed,
            out: self.compute.settings().out,
        };
        Search::new(request).map_err(|error| match error.downcast::<Refused>() {
            Ok(refused) => Usage(refused.0).into(),
            Err(other) => other,
        })
    }

    /// Returns the axes to search, and the seeds with which the chosen settings are trained. A choice of seeds would fit the
    /// held-out images, which depend on the seed.
    fn axes_and_seeds(&self) -> Result<(Vec<Axis>, Vec<u64>)> {
        let (of_seeds, axes): (Vec<Axis>, Vec<Axis>) = self.axes()?.into_iter().partition(|axis| axis.key == "seed");
        let seed = |word: &String| {
            word.parse::<u64>().map_err(|_| Usage(format!("--over seed={word}: must be a whole number from 0 on")))
        };
        let seeds = match &of_seeds[..] {
            [] => Vec::new(),
            [Axis { values: Values::Listed(words), .. }] => words.iter().map(seed).collect::<Result<Vec<_>, _>>()?,
            _ => return Err(Usage("--over seed: give all seeds at once, as seed=1,2,3".into()).into()),
        };
        if axes.is_empty() {
            let why =
                "--over seed: nothing is left to choose: `bella train CONFIG --seeds 1,2,3` trains with several seeds";
            return Err(Usage(why.into()).into());
        }
        Ok((axes, seeds))
    }

    /// Returns the axes with their keys written in full.
    fn axes(&self) -> Result<Vec<Axis>> {
        if !self.over.iter().any(|axis| may_be_short(&axis.key)) {
            return Ok(self.over.clone());
        }
        let tree = load_without(&self.configs, &self.sets, &self.unsets)?;
        let full = |axis: &Axis| match full_key(&tree, &axis.key) {
            Ok(key) => Ok(Axis { key: key.unwrap_or_else(|| axis.key.clone()), values: axis.values.clone() }),
            Err(why) => Err(Usage(format!("--over {}: {why}", axis.key)).into()),
        };
        self.over.iter().map(full).collect()
    }
}

/// Divides the machine among the jobs.
///
/// # Errors
/// Fails if there are fewer GPUs than jobs.
fn share(args: &SweepArgs) -> Result<Share> {
    let jobs = usize::from(args.jobs);
    let devices = devices(args.compute.device, jobs)?;
    let cores = cores_each(jobs);
    let at = devices[0];
    let sharing = devices.iter().filter(|device| **device == at).count();
    // Processes that start at the same time would each plan with all of the free memory.
    let free = if sharing > 1 { memory::free_bytes(at.open()?) } else { None };
    let whole = args.compute.memory.or(free.map(memory::gib));
    Ok(Share {
        devices,
        threads: args.compute.threads.map_or(cores, |threads| threads as usize),
        wait: args.compute.wait,
        workers: args.compute.workers.map_or(cores, usize::from),
        memory: whole.map(|whole| whole / sharing as f64),
        trust: args.compute.trust,
    })
}

/// Returns the device of each job: a GPU of its own, or the CPU where there is none.
fn devices(choice: DeviceChoice, jobs: usize) -> Result<Vec<DeviceChoice>> {
    if choice != DeviceChoice::Auto {
        return Ok(vec![choice; jobs]);
    }
    match choice.open()? {
        tch::Device::Cuda(_) => {
            let count = tch::Cuda::device_count() as usize;
            if jobs > count {
                let why = format!("--jobs {jobs}: there are {count} GPUs; fewer jobs, or --device cuda:0 to share one");
                return Err(Usage(why).into());
            }
            Ok((0..jobs).map(DeviceChoice::Cuda).collect())
        }
        _ => Ok(vec![DeviceChoice::Cpu; jobs]),
    }
}

fn print_plan(search: &Search) {
    for trial in &search.trials {
        println!("{}: {} (run {})", trial.number, trial.words(search.axes()), trial.run.id());
    }
    let mut alive = search.trials.len();
    for rung in 0..search.halving.rungs {
        let epochs: Vec<usize> = search.trials.iter().map(|trial| search.halving.epochs(rung, trial.epochs)).collect();
        let (least, most) = (epochs.iter().min().unwrap_or(&0), epochs.iter().max().unwrap_or(&0));
        let up_to = if least == most { most.to_string() } else { format!("{least} to {most}") };
        println!("rung {}: {alive} trials up to epoch {up_to}", rung + 1);
        alive = search.halving.kept(alive);
    }
}

fn print_table(search: &Search) {
    let table = ledger::table(search.axes(), &search.trials, &search.standings);
    let keys = search.axes().iter().map(|axis| axis.key.clone());
    let named = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let columns = named(&["trial"])
        .into_iter()
        .chain(keys)
        .chain(named(&["state", "epochs", "validation_nll_lm", "validation_accuracy_lm"]))
        .chain(search.trials.first().map(|trial| trial.by.column()))
        .fold(Vec::new(), |mut columns, column| {
            push_new(&mut columns, column);
            columns
        });
    print_drawn(&render(&table, &Spec { columns, group_by: vec![], surface: Surface::of_stdout() }));
}

fn announce(search: &Search, at: usize, is_last: bool) {
    let trial = &search.trials[at];
    tracing::info!("chosen: trial {} ({}), run {}", trial.number, trial.words(search.axes()), trial.run.id());
    tracing::info!("tried settings: {}, {}", search.ledger.trials().display(), search.ledger.picture().display());
    if is_last {
        tracing::info!("on the test split: bella train {}", search.ledger.chosen().display());
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn jobs_on_one_device_share_the_memory_that_is_allowed() {
        let memory = |jobs: &str| {
            let words = ["sweep", "x.toml", "--over", "lr=1,2", "--device", "cpu", "--memory", "8", "--jobs", jobs];
            let given = SweepArgs::augment_args(Command::new("sweep")).get_matches_from(words);
            share(&SweepArgs::from_arg_matches(&given).unwrap()).unwrap().memory
        };
        assert_eq!([memory("1"), memory("4")], [Some(8.0), Some(2.0)]);
    }
}
