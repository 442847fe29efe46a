//! `bella bench`: the cost of training and prediction on this machine, case by case. A case may run in a process of its own, so that its
//! peak memory includes no other case.

mod estimate;
mod options;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use options::cases;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGKILL;

use crate::base::files::create_folder;
use crate::base::outside::print_drawn;
use crate::base::small::Usage;
use crate::bench::case::{Choices, Source};
use crate::bench::measure::measure;
use crate::bench::measured::{Feed, Measured};
use crate::bench::row::{self, KEYS, Label};
use crate::machine::child::{bella, end_with_parent};
use crate::machine::{Precision, wait};
use crate::results::BENCH;
use crate::results::store::{Row, Table, upsert_row};
use crate::results::table::{Spec, Surface, render};
use crate::schema::Choice;

pub use options::BenchArgs;

pub fn run(args: &BenchArgs) -> Result<()> {
    if let Some(configs) = &args.estimate {
        return estimate::run(args, configs);
    }
    if args.steps == 0 && args.predictions == 0 {
        return Err(Usage("--steps 0 --predictions 0: nothing to measure".into()).into());
    }
    let cases = cases(args);
    for (source, choices) in &cases {
        check(args, source, choices)?;
    }
    if args.alone {
        return alone(args, &cases);
    }
    create_folder(args.compute.out())?;
    let device = crate::machine::device::name(args.compute.device.open()?);
    let mut outcomes: Vec<Option<Outcome>> = cases.iter().map(|_| None).collect();
    let mut rows = Rows { args, device, shown: Table::default(), failed: 0 };
    for round in 1..=args.rounds {
        for ((source, choices), outcome) in cases.iter().zip(&mut outcomes) {
            let what =
                format!("{} {} {} n = {}", source.name(), choices.subspace, choices.method.word(), choices.particles);
            tracing::info!("round {round} of {}: {what}, {}", args.rounds, choices.precision);
            let found = joined(outcome.take(), child(args, source, choices)?);
            // Written at once: whoever ends the command keeps the cases that are done.
            match round == args.rounds {
                true => rows.add(source, choices, found)?,
                false => *outcome = Some(found),
            }
        }
    }
    rows.finish(cases.len())
}

/// Finds mistakes in the settings before anything is measured.
fn check(args: &BenchArgs, source: &Source, choices: &Choices) -> Result<()> {
    if matches!(args.feed, Feed::Gradients) && choices.method.variant.asks_for_mixing {
        let why = format!(
            "--feed gradients: {} needs more than given gradients (mixed ones, or logits); leave it out of --methods",
            choices.method.word()
        );
        return Err(Usage(why).into());
    }
    if let Source::Published(published) = source {
        let why = format!("--shapes {}: its costs can be estimated, and not measured: add --estimate", published.key);
        return Err(Usage(why).into());
    }
    let experiment = choices.experiment(source)?;
    if let Some(training) = &experiment.training {
        let kind = crate::machine::device::compute_kind(training.train.precision, args.compute.device.open()?);
        if let Err(error) = kind.map(drop) {
            return Err(Usage(format!("--precisions: {error:#}")).into());
        }
        if training.train.precision == Precision::F64 {
            return Err(Usage("--precisions f64: is there to check formulas; measure f32 or bf16".into()).into());
        }
    }
    Ok(())
}

/// One row per case, written to `bench.csv` and printed at the end.
struct Rows<'a> {
    args: &'a BenchArgs,
    device: String,
    shown: Table,
    failed: usize,
}

impl Rows<'_> {
    fn path(&self) -> PathBuf {
        self.args.compute.out().join(BENCH)
    }

    fn add(&mut self, source: &Source, choices: &Choices, outcome: Outcome) -> Result<()> {
        let args = self.args;
        let label = Label {
            model: source.name(),
            choices,
            feed: args.feed,
            device: self.device.clone(),
            threads: args.compute.threads.unwrap_or_else(tch::get_num_threads),
            wait: wait::of_environment(),
            prediction_images: args.prediction_images,
        };
        let mut row: Row = row::row(&label, &outcome);
        if args.table2 {
            row::push_published(&mut row, choices)?;
        }
        // A case that does not fit in memory is a result; any other error is a failure.
        self.failed += outcome.is_err_and(|why| !why.contains("memory")) as usize;
        upsert_row(&self.path(), &row, KEYS)?;
        self.shown.append(&row::shown(&row));
        Ok(())
    }

    fn finish(self, cases: usize) -> Result<()> {
        let columns = self.shown.columns.clone();
        print_drawn(&render(&self.shown, &Spec { columns, group_by: Vec::new(), surface: Surface::of_stdout() }));
        tracing::info!("all columns: {}", self.path().display());
        if self.failed > 0 {
            bail!("{} of {cases} cases failed: see the column status", self.failed);
        }
        Ok(())
    }
}

/// The measurements of a case, or the reason why there are none.
type Outcome = std::result::Result<Measured, String>;

/// Joins the rounds of one case. A case that failed once stays failed.
fn joined(earlier: Option<Outcome>, latest: Outcome) -> Outcome {
    match (earlier, latest) {
        (Some(Ok(mut all)), Ok(latest)) => {
            all.extend(latest);
            Ok(all)
        }
        (Some(Err(why)), _) => Err(why),
        (_, latest) => latest,
    }
}

/// The line that a child process prints.
#[derive(Serialize, Deserialize)]
enum Answer {
    Measured(Box<Measured>),
    Failed(String),
}

/// Measures one case in its own process.
fn child(args: &BenchArgs, source: &Source, choices: &Choices) -> Result<Outcome> {
    let mut command = bella()?;
    command.args(["bench", "--alone", "--subspaces", &choices.subspace, "--methods", choices.method.word()]);
    command.args(["--particles", &choices.particles.to_string(), "--precisions", choices.precision.word()]);
    match source {
        Source::Shape(shape) => command.args(["--shapes", shape.key]),
        Source::Published(published) => command.args(["--shapes", published.key]),
        Source::Checkpoint(path) => command.arg("--checkpoint").arg(path),
    };
    for (option, value) in [
        ("--batch-size", args.batch_size),
        ("--rank", args.rank),
        ("--steps", args.steps as i64),
        ("--predictions", args.predictions as i64),
        ("--prediction-images", args.prediction_images),
        ("--warmup", args.warmup as i64),
    ] {
        command.args([option, &value.to_string()]);
    }
    command.args(["--particle-chunk", &args.particle_chunk, "--device", &args.compute.device.to_string()]);
    command.args(["--feed", args.feed.word()]);
    command.args(args.blocks.iter().flat_map(|blocks| ["--blocks", blocks]));
    command.args(args.sets.iter().flat_map(|set| ["--set", set]));
    if args.recompute {
        command.arg("--recompute");
    }
    if let Some(threads) = args.compute.threads {
        command.args(["--threads", &threads.to_string()]);
    }
    // The children wait as this process does, so that all cases are measured alike.
    command.args(["--wait", wait::of_environment().word()]);
    if let Some(gib) = args.compute.memory {
        command.args(["--memory", &gib.to_string()]);
    }
    if args.compute.trust {
        command.arg("--trust");
    }
    answer(command)
}

/// Returns the answer of a case that was measured in its own process.
fn answer(mut command: Command) -> Result<Outcome> {
    end_with_parent(&mut command, SIGKILL);
    let mut process = command.stdout(Stdio::piped()).spawn().context("cannot start a process for a case")?;
    let mut text = String::new();
    if let Some(out) = process.stdout.as_mut() {
        out.read_to_string(&mut text).context("reading from the process of a case")?;
    }
    let status = process.wait()?;
    match serde_json::from_str(&text) {
        Ok(Answer::Measured(measured)) => Ok(Ok(*measured)),
        Ok(Answer::Failed(why)) => Ok(Err(why)),
        Err(_) => Ok(Err(ended(status))),
    }
}

/// Returns why a process ended that printed no answer.
fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(SIGKILL) => "out of memory: the system ended the process".to_string(),
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("failed with {status}"),
    }
}

/// Measures the only case in this process.
fn alone(args: &BenchArgs, cases: &[(Source, Choices)]) -> Result<()> {
    let [(source, choices)] = cases else { bail!("--alone: {} cases", cases.len()) };
    let device = args.compute.settings().device.open()?;
    wait::announce();
    tch::set_num_threads(args.compute.threads.unwrap_or_else(tch::get_num_threads));
    let answer = match measure(source, choices, args.plan(), device) {
        Ok(measured) => Answer::Measured(Box::new(measured)),
        Err(error) => Answer::Failed(format!("{error:#}").lines().next().unwrap_or_default().to_string()),
    };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}
