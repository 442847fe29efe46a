//! The command line, with one file per command.

mod acquire;
mod attack;
mod bench;
mod check;
mod compare;
mod completions;
mod conformal;
mod data;
mod ending;
mod eval;
mod export;
mod head;
mod images;
mod import;
mod init;
mod inspect;
mod landscape;
mod list;
mod merge;
mod options;
mod output;
mod packed;
mod predict;
mod rehearse;
mod report;
mod runs;
mod score;
mod sensitivity;
mod similarity;
mod sweep;
mod tokenize;
mod train;
mod watch;

use std::ffi::{OsStr, OsString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use clap::builder::Resettable;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::CompleteEnv;
use signal_hook::consts::SIGXFSZ;

use crate::base::small::Usage;
use crate::data::SplitName;
use crate::machine::parallel::{ProcessGroup, launch_rank, let_first_speak, processes};
use crate::machine::{Wait, child, wait};
use crate::model::archive::trial;
use ending::{Stopped, fail};
use options::ComputeArgs;

/// Bayesian fine-tuning of pretrained networks.
///
/// Reads a TOML experiment, loads a pretrained network (a folder or a TorchScript archive), trains a posterior (SVGD,
/// ensembles, Laplace, IVON; low-rank or full), and writes tables of accuracy, calibration and uncertainty as CSV.
#[derive(Parser)]
#[command(version, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print more messages (-v: debug, -vv: everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Use no network: checkpoints by name (hf://…) must be in the cache.
    #[arg(long, global = true)]
    offline: bool,
}

#[derive(Subcommand)]
enum Command {
    Train(train::TrainArgs),
    Sweep(sweep::SweepArgs),
    Eval(eval::EvalArgs),
    Runs(runs::RunsArgs),
    Watch(watch::WatchArgs),
    Predict(predict::PredictArgs),
    Acquire(acquire::AcquireArgs),
    Score(score::ScoreArgs),
    Compare(compare::CompareArgs),
    Soup(merge::SoupArgs),
    Merge(merge::MergeArgs),
    Sensitivity(sensitivity::SensitivityArgs),
    Similarity(similarity::SimilarityArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Landscape(landscape::LandscapeArgs),
    Images(images::ImagesArgs),
    Bench(bench::BenchArgs),
    Rehearse(rehearse::RehearseArgs),
    Init(init::InitArgs),
    Inspect(inspect::InspectArgs),
    Head(head::HeadArgs),
    Tokenize(tokenize::TokenizeArgs),
    Check(check::CheckArgs),
    Data(data::DataArgs),
    Report(report::ReportArgs),
    List(list::ListArgs),
    Completions(completions::CompletionsArgs),
}

/// Runs the command line of this process. The exit code is 0 for success, 1 for failure, and 2 for bad usage or a bad
/// config.
pub fn main() -> ExitCode {
    child::skip_static_destructors();
    run(std::env::args_os())
}

/// Runs a command line whose first word is the name of the program. A program built on this library calls it after it
/// has registered its own methods.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    // The shell asks for completions by a variable; the process ends with the answer.
    CompleteEnv::with_factory(Cli::command).var(completions::ASKED_BY).complete();
    if let Some(code) = trial::answer() {
        return ExitCode::from(code);
    }
    let words = understood(words.into_iter().collect());
    let cli = begun(words.clone());
    let group = match open_world(&cli.command) {
        Ok(group) => Rc::new(group),
        // All processes fail alike, and one message is enough.
        Err(_) if launch_rank() > 0 => {
            let_first_speak();
            return ExitCode::from(2);
        }
        Err(error) => return ExitCode::from(fail(&Usage(format!("{error:#}")).into())),
    };
    if !group.is_main() {
        crate::base::logging::hush(group.rank());
    }
    let error = match catch_unwind(AssertUnwindSafe(|| dispatch(cli.command, &words, group.clone()))) {
        Ok(Ok(())) => return group.end(0),
        Ok(Err(error)) => error,
        Err(payload) => anyhow::anyhow!(crate::base::tensor::panic_line(payload.as_ref())),
    };
    if closed_early(&error) {
        return group.end(0);
    }
    if error.is::<Stopped>() {
        return group.end(if group.is_main() { fail(&error) } else { 1 });
    }
    let_first_speak();
    group.abort(fail(&error))
}

/// Puts `--split SPLIT` of `bella predict` in place of `--set SPLIT`, as it was called.
fn understood(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_none_or(|command| command != "predict") {
        return words;
    }
    let is_split = |word: &OsStr| SplitName::ALL.iter().any(|split| *word == *split.to_string());
    for at in 2..words.len() {
        if words[at] == "--set" && words.get(at + 1).is_some_and(|next| is_split(next)) {
            words[at] = "--split".into();
        }
        let joined =
            words[at].to_str().and_then(|word| word.strip_prefix("--set=")).filter(|word| is_split(OsStr::new(word)));
        if let Some(split) = joined {
            words[at] = format!("--split={split}").into();
        }
    }
    words
}

/// Prepares the process for a command line, and returns what [`parsed`] reads in it.
fn begun(words: Vec<OsString>) -> Cli {
    crate::machine::memory::keep_freed();
    let of_process = std::env::args_os().eq(words.iter().cloned());
    if let (true, Ok(program)) = (of_process, std::env::current_exe()) {
        child::start_by(program);
    }
    let cli = parsed(words);
    crate::base::logging::start(cli.verbose);
    if cli.offline {
        crate::hub::go_offline();
        // Processes that this one starts inherit the environment. No other thread reads it yet.
        if of_process {
            unsafe { std::env::set_var(OFFLINE, "1") };
        }
    }
    if let Some(compute) = computing(&cli.command).filter(|_| of_process) {
        settle_waiting(compute);
    }
    child::watch_parent();
    report_file_sizes();
    end_on_signals();
    cli
}

/// Reads the words of a command line. As clap does, it ends the process at a mistake.
///
/// Where an option needs another one that conflicts with a third, clap does not ask for it beside the third: `--epsilon` would count for
/// nothing beside `--corrupt`. So words without a conflict are read again as if there were none.
fn parsed(words: Vec<OsString>) -> Cli {
    let cli = Cli::parse_from(&words);
    if let Err(error) = without_conflicts(Cli::command()).try_get_matches_from(words) {
        error.exit();
    }
    cli
}

fn without_conflicts(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.conflicts_with(Resettable::Reset)).mut_subcommands(without_conflicts)
}

/// Lets Ctrl-C and SIGTERM end the process with a line. Of processes that were started together, the launcher does so.
fn end_on_signals() {
    if processes() == 1
        && let Err(error) = ending::end_at_once("stopped; what was finished before is saved", || {})
    {
        tracing::debug!("signals are not caught: {error:#}");
    }
}

/// Makes the threads wait as the options say. Processes that were started together have cores of their own, so that they
/// do not count each other as load.
fn settle_waiting(compute: &ComputeArgs) {
    let threads = compute.threads.unwrap_or_else(tch::get_num_threads);
    if compute.wait != Wait::Auto || processes() == 1 {
        wait::settle(compute.wait, threads.max(1) as usize);
    }
}

/// Returns the options for computing of a command that computes in this process.
fn computing(command: &Command) -> Option<&ComputeArgs> {
    match command {
        Command::Train(args) => Some(&args.compute),
        Command::Eval(args) => Some(&args.compute),
        Command::Predict(args) => Some(&args.compute),
        Command::Soup(args) => Some(&args.shared.compute),
        Command::Merge(args) => Some(&args.shared.compute),
        Command::Sensitivity(args) => Some(&args.compute),
        Command::Acquire(args) => Some(&args.compute),
        Command::Similarity(args) => Some(&args.compute),
        Command::Landscape(args) => Some(&args.compute),
        Command::Bench(args) => Some(&args.compute),
        Command::Export(args) => Some(&args.compute),
        Command::Import(args) => Some(&args.compute),
        Command::Check(args) if args.deep => Some(&args.compute),
        Command::Score(_)
        | Command::Compare(_)
        | Command::Images(_)
        | Command::Rehearse(_)
        | Command::Init(_)
        | Command::Inspect(_)
        | Command::Head(_)
        | Command::Tokenize(_)
        | Command::Check(_)
        | Command::Data(_)
        | Command::Report(_)
        | Command::List(_)
        | Command::Sweep(_)
        | Command::Runs(_)
        | Command::Watch(_)
        | Command::Completions(_) => None,
    }
}

/// Makes a file that would exceed the system's size limit (`ulimit -f`) an error of writing from now on. Otherwise the
/// system would end the process without a message.
fn report_file_sizes() {
    let seen = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, seen) {
        tracing::debug!("SIGXFSZ is not caught: {error}");
    }
}

/// Returns the processes that work on a command together.
///
/// # Errors
/// Fails if several processes were started for a command that each of them would repeat.
fn open_world(command: &Command) -> Result<ProcessGroup> {
    let several = processes();
    match command {
        Command::Train(_) => ProcessGroup::open(),
        _ if several > 1 => bail!("{several} processes were started together, but only `bella train` divides its work"),
        _ => Ok(ProcessGroup::alone()),
    }
}

/// Returns whether the reader of standard output closed it early, as in `bella list | head`, which is no error.
/// `println!` panics with the system's message.
fn closed_early(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    let printing = error.to_string().strip_prefix("failed printing to stdout: ").map(str::to_string);
    let broken = std::io::Error::from_raw_os_error(BROKEN_PIPE).to_string();
    printing.is_some_and(|why| why == broken) || error.chain().any(|cause| cause.downcast_ref().is_some_and(is_pipe))
}

/// The variable of the Hub's Python package that forbids the network.
const OFFLINE: &str = "HF_HUB_OFFLINE";

/// The number of the error EPIPE on every Unix.
const BROKEN_PIPE: i32 = 32;

fn dispatch(command: Command, words: &[OsString], group: Rc<ProcessGroup>) -> Result<()> {
    match command {
        Command::Train(args) => train::run(&args, group),
        Command::Sweep(args) => sweep::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Soup(args) => merge::soup(&args),
        Command::Merge(args) => merge::merge(&args),
        Command::Sensitivity(args) => sensitivity::run(&args),
        Command::Acquire(args) => acquire::run(&args),
        Command::Similarity(args) => similarity::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Landscape(args) => landscape::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Rehearse(args) => rehearse::run(&args, words),
        Command::Init(args) => init::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Head(args) => head::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Data(args) => data::run(&args),
        Command::Report(args) => report::run(&args),
        Command::List(args) => list::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
