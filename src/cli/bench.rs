//! `bella bench`: the cost of training and prediction on this machine, case by case.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::failure::Usage;
use super::options::ComputeArgs;
use crate::base::files::create_folder;
use crate::bench::case::{BenchMethod, Choices, Source};
use crate::bench::measure::{Feed, Measured, Plan, measure};
use crate::bench::row::{self, KEYS, Label};
use crate::machine::{Precision, wait};
use crate::model::vit::shapes::{SHAPES, Shape};
use crate::results::store::{Row, Table, upsert_row};
use crate::results::table::{Spec, Surface, render};
use crate::schema::Choice;

/// Measure parameters, memory, disk, seconds and FLOP/s of training and prediction (bench.csv in the results folder).
///
/// Every combination of the lists is a case, measured in its own process on random images. A training step is complete:
/// forward pass, backward pass, method, optimizer. FLOP/s are counted from shapes, without recomputation and without
/// the mixing of svgd-weight, and compared with the rate of matrix products on this machine, measured in the same
/// process and precision.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella bench --particles 5,20,100 --batch-size 8 --precisions f32,bf16\n  \
    bella bench --checkpoint ViT-B-32.pt --blocks 6-11 --feed prefix\n  \
    bella bench --shapes clip-mini --subspaces low-rank,full --methods svgd,ivon --rounds 3\n  bella bench --table2")]
pub struct BenchArgs {
    /// Published shapes with random weights: vit-b-32, vit-b-16, vit-l-14, clip-mini.
    #[arg(long, value_delimiter = ',', default_value = "vit-b-32", conflicts_with = "checkpoint", value_parser = shape)]
    shapes: Vec<&'static Shape>,

    /// TorchScript archive to measure instead of a shape.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,

    /// Subspaces to measure.
    #[arg(long, value_delimiter = ',', default_value = "low-rank")]
    subspaces: Vec<String>,

    /// Methods to measure.
    #[arg(long, value_delimiter = ',', default_value = "svgd")]
    methods: Vec<BenchMethod>,

    /// Numbers of particles (map has one).
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "5", value_parser = clap::value_parser!(i64).range(1..=100_000))]
    particles: Vec<i64>,

    /// Number types to compute in.
    #[arg(long, value_delimiter = ',', default_value = "f32")]
    precisions: Vec<Precision>,

    /// Images per particle and training step.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    batch_size: i64,

    /// Rank of the low-rank update.
    #[arg(long, value_name = "N", default_value_t = 4)]
    rank: i64,

    /// Blocks that get low-rank updates, such as 6-11.
    #[arg(long, value_name = "RANGES")]
    blocks: Option<String>,

    /// Source of the images that a step starts from.
    #[arg(long, default_value = "images")]
    feed: Feed,

    /// Particles per forward pass: a number, 0 for all, or auto.
    #[arg(long, value_name = "N", default_value = "auto")]
    particle_chunk: String,

    /// Compute activations again in the backward pass instead of keeping them.
    #[arg(long)]
    recompute: bool,

    /// Another setting of the config: `--set train.accumulate=2`.
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Timed training steps per round; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 5)]
    steps: usize,

    /// Timed predictions per round; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 3)]
    predictions: usize,

    /// Images per prediction.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    prediction_images: i64,

    /// Steps and predictions before the timing starts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    warmup: usize,

    /// Rounds over all cases; cases take turns within a round.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    /// Measure the cells of Bella's Table 2 (n = 3, 5, 20, 40, 100; base and Bella) and add the published figures.
    #[arg(long, conflicts_with_all = ["subspaces", "methods", "particles"])]
    table2: bool,

    #[command(flatten)]
    pub compute: ComputeArgs,

    /// Measure the only case in this process and print the result.
    #[arg(long, hide = true)]
    alone: bool,
}

fn shape(text: &str) -> Result<&'static Shape> {
    let known = SHAPES.iter().map(|shape| shape.key).collect::<Vec<_>>().join(", ");
    SHAPES.iter().find(|shape| shape.key == text).with_context(|| format!("unknown shape `{text}`; known: {known}"))
}

pub fn run(args: &BenchArgs) -> Result<()> {
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
    create_folder(&args.compute.out)?;
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

/// Returns all combinations of the lists.
fn cases(args: &BenchArgs) -> Vec<(Source<'_>, Choices)> {
    let sources: Vec<Source> = match &args.checkpoint {
        Some(path) => vec![Source::Archive(path)],
        None => args.shapes.iter().map(|shape| Source::Shape(shape)).collect(),
    };
    let mut cases = Vec::new();
    for source in sources {
        for precision in &args.precisions {
            for (subspace, method, particles) in combinations(args) {
                let choices = Choices {
                    subspace,
                    method,
                    particles,
                    batch_size: args.batch_size,
                    rank: args.rank,
                    blocks: args.blocks.clone(),
                    precision: *precision,
                    particle_chunk: args.particle_chunk.clone(),
                    recompute: args.recompute,
                    sets: args.sets.clone(),
                };
                cases.push((source, choices));
            }
        }
    }
    cases
}

/// Returns the subspace, method and number of particles of each case.
fn combinations(args: &BenchArgs) -> Vec<(String, BenchMethod, i64)> {
    if args.table2 {
        let named = |word: &'static str| BenchMethod::all().into_iter().filter(move |method| method.word() == word);
        let of = |subspace: &'static str, word: &'static str, counts: &'static [i64]| {
            named(word).flat_map(move |method| counts.iter().map(move |n| (subspace.to_string(), method, *n)))
        };
        let counts = &[3, 5, 20, 40, 100];
        return of("full", "map", &[1])
            .chain(of("full", "svgd", counts))
            .chain(of("low-rank", "svgd", counts))
            .collect();
    }
    let mut all: Vec<(String, BenchMethod, i64)> = Vec::new();
    for subspace in &args.subspaces {
        for method in &args.methods {
            for particles in &args.particles {
                let case = (subspace.clone(), *method, method.particles(*particles));
                if !all.iter().any(|known| (&known.0, known.1.word(), known.2) == (&case.0, case.1.word(), case.2)) {
                    all.push(case);
                }
            }
        }
    }
    all
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
    let experiment = choices.experiment(source)?;
    if let Some(training) = &experiment.training {
        let kind = crate::machine::device::compute_kind(training.train.precision, args.compute.device.open()?);
        if let Err(error) = kind.map(drop) {
            return Err(Usage(format!("{error:#}")).into());
        }
        if training.train.precision == Precision::F64 {
            return Err(Usage("--precisions f64: is there to check formulas; measure f32 or bf16".into()).into());
        }
    }
    Ok(())
}

/// The line that a child process prints.
#[derive(Serialize, Deserialize)]
enum Answer {
    Measured(Box<Measured>),
    Failed(String),
}

/// Measures the only case in this process.
fn alone(args: &BenchArgs, cases: &[(Source, Choices)]) -> Result<()> {
    let [(source, choices)] = cases else { bail!("--alone: {} cases", cases.len()) };
    crate::bench::volunteer();
    let device = args.compute.settings().device.open()?;
    tch::set_num_threads(args.compute.threads.unwrap_or_else(tch::get_num_threads));
    let plan = Plan {
        steps: args.steps,
        predictions: args.predictions,
        warmup: args.warmup,
        prediction_images: args.prediction_images,
        feed: args.feed,
    };
    let answer = match measure(source, choices, plan, device) {
        Ok(measured) => Answer::Measured(Box::new(measured)),
        Err(error) => Answer::Failed(format!("{error:#}").lines().next().unwrap_or_default().to_string()),
    };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

/// Measures one case in its own process.
fn child(args: &BenchArgs, source: &Source, choices: &Choices) -> Result<Outcome> {
    let program = std::env::current_exe().context("where this program lies")?;
    let mut command = Command::new(program);
    command.args(["bench", "--alone", "--subspaces", &choices.subspace, "--methods", choices.method.word()]);
    command.args(["--particles", &choices.particles.to_string(), "--precisions", choices.precision.word()]);
    match source {
        Source::Shape(shape) => command.args(["--shapes", shape.key]),
        Source::Archive(path) => command.arg("--checkpoint").arg(path),
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
    const KILL: i32 = 9;
    match status.signal() {
        Some(KILL) => "out of memory: the system ended the process".to_string(),
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("failed with {status}"),
    }
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
        self.args.compute.out.join("bench.csv")
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
        print!("{}", render(&self.shown, &Spec { columns, group_by: Vec::new(), surface: Surface::of_stdout() }));
        tracing::info!("all columns: {}", self.path().display());
        if self.failed > 0 {
            bail!("{} of {cases} cases failed: see the column status", self.failed);
        }
        Ok(())
    }
}
