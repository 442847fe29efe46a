//! The command line: one file a command.

mod attack;
mod bench;
mod check;
mod compare;
mod data;
mod eval;
mod head;
mod images;
mod inspect;
mod landscape;
mod laplace;
mod list;
mod merge;
mod opened;
mod predict;
mod rehearse;
mod report;
mod score;
mod sensitivity;
mod similarity;
mod soup;
mod tokenize;
mod train;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::{Choice, Experiment, Problems, Tree};
use crate::device::DeviceChoice;
use crate::parallel::{World, launch_rank, let_first_speak, processes};
use crate::session::Settings;

/// Bayesian fine-tuning of pretrained vision transformers.
///
/// Reads a TOML experiment, loads a TorchScript CLIP or ViT checkpoint, trains a posterior (SVGD, ensembles; low-rank or
/// full), and writes accuracy, calibration and uncertainty tables to CSV.
#[derive(Parser)]
#[command(version, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// More messages (-v: debug, -vv: everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    Train(train::TrainArgs),
    Eval(eval::EvalArgs),
    Predict(predict::PredictArgs),
    Score(score::ScoreArgs),
    Compare(compare::CompareArgs),
    Soup(soup::SoupArgs),
    Merge(merge::MergeArgs),
    Sensitivity(sensitivity::SensitivityArgs),
    Similarity(similarity::SimilarityArgs),
    Landscape(landscape::LandscapeArgs),
    Images(images::ImagesArgs),
    Bench(bench::BenchArgs),
    Rehearse(rehearse::RehearseArgs),
    Inspect(inspect::InspectArgs),
    Head(head::HeadArgs),
    Tokenize(tokenize::TokenizeArgs),
    Check(check::CheckArgs),
    Data(data::DataArgs),
    Report(report::ReportArgs),
    List(list::ListArgs),
    Completions(CompletionsArgs),
}

/// Print shell completions.
#[derive(Args)]
#[command(after_help = "Example:\n  bella completions bash > ~/.local/share/bash-completion/completions/bella")]
struct CompletionsArgs {
    shell: clap_complete::Shell,
}

/// Config files and overrides.
#[derive(Args)]
struct ConfigArgs {
    /// A TOML experiment; several merge left to right.
    #[arg(short, long = "config", value_name = "FILE")]
    configs: Vec<PathBuf>,

    /// Override a key, after all files: `--set method.svgd.particles=20`.
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

impl ConfigArgs {
    /// The experiment, with one more override.
    fn read(&self, set: Option<String>) -> Result<Experiment, Problems> {
        let sets: Vec<String> = self.sets.iter().cloned().chain(set).collect();
        Experiment::read(&Tree::load(&self.configs, &sets)?)
    }
}

/// Where to compute and where to write.
#[derive(Args)]
struct ComputeArgs {
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,

    /// Threads of libtorch [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=4096))]
    threads: Option<i32>,

    /// Threads that decode images [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Results folder.
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    out: PathBuf,
}

impl ComputeArgs {
    fn settings(&self) -> Settings {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            device: self.device,
            threads: self.threads,
            workers: self.workers.map_or(cores, usize::from),
            precision: None,
            out: self.out.clone(),
        }
    }
}

/// A word of a choice, for an option that is about `what`.
fn parse_choice<T: Choice>(what: &str, text: &str) -> Result<T> {
    let known = T::CHOICES.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let found = T::CHOICES.iter().find(|(word, _)| *word == text);
    found.map(|(_, choice)| *choice).with_context(|| format!("unknown {what} `{text}`; known: {known}"))
}

/// A mistake of the user in the command line: exit code 2.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Training that a signal has stopped, in all of its processes.
#[derive(Debug)]
struct Stopped(String);

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stopped {}

/// Runs the command line. Exit codes: 0 fine, 1 failed, 2 bad usage or config.
pub fn main() -> ExitCode {
    crate::memory::keep_freed();
    let cli = Cli::parse();
    crate::logging::start(cli.verbose);
    let world = match open_world(&cli.command) {
        Ok(world) => Rc::new(world),
        // Every process knows the same, and one line is enough.
        Err(_) if launch_rank() > 0 => {
            let_first_speak();
            return ExitCode::from(2);
        }
        Err(error) => return ExitCode::from(fail(&Usage(format!("{error:#}")).into())),
    };
    if !world.leads() {
        crate::logging::hush(world.rank());
    }
    let error = match catch_unwind(AssertUnwindSafe(|| dispatch(cli.command, world.clone()))) {
        Ok(Ok(())) => return world.end(0),
        Ok(Err(error)) => error,
        Err(payload) => anyhow::anyhow!(crate::tensor::panic_line(payload.as_ref())),
    };
    if closed_early(&format!("{error:#}")) {
        return world.end(0);
    }
    if error.is::<Stopped>() {
        return world.end(if world.leads() { fail(&error) } else { 1 });
    }
    let_first_speak();
    world.abort(fail(&error))
}

/// The processes that work on a command together.
///
/// # Errors
/// Several processes for a command that each would repeat.
fn open_world(command: &Command) -> Result<World> {
    let several = processes();
    match command {
        Command::Train(_) => World::open(),
        _ if several > 1 => bail!("{several} processes were started together, but only `bella train` divides its work"),
        _ => Ok(World::alone()),
    }
}

/// `bella list | head` closes the pipe early: nothing to complain of.
fn closed_early(message: &str) -> bool {
    message.contains("Broken pipe")
}

fn dispatch(command: Command, world: Rc<World>) -> Result<()> {
    match command {
        Command::Train(args) => train::run(&args, world),
        Command::Eval(args) => eval::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Soup(args) => soup::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Sensitivity(args) => sensitivity::run(&args),
        Command::Similarity(args) => similarity::run(&args),
        Command::Landscape(args) => landscape::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Rehearse(args) => rehearse::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Head(args) => head::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Data(args) => data::run(&args),
        Command::Report(args) => report::run(&args),
        Command::List(args) => list::run(&args),
        Command::Completions(args) => {
            clap_complete::generate(args.shell, &mut Cli::command(), "bella", &mut std::io::stdout());
            Ok(())
        }
    }
}

/// Every mistake as an error of its own.
fn print_problems(problems: &Problems) {
    problems.to_string().lines().for_each(|line| tracing::error!("{line}"));
}

/// Prints what went wrong; the exit code.
fn fail(error: &anyhow::Error) -> u8 {
    if let Some(problems) = error.downcast_ref::<Problems>() {
        print_problems(problems);
        return 2;
    }
    // A message is one line; what libtorch adds below it is for the debug log.
    let text = format!("{error:#}");
    tracing::debug!("{text}");
    tracing::error!("{}", text.lines().next().unwrap_or("unknown error"));
    if error.is::<Usage>() { 2 } else { 1 }
}
