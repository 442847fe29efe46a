//! One case in a process of its own, so that its peak memory includes no other case.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGKILL;

use super::options::BenchArgs;
use crate::bench::case::{Choices, Source};
use crate::bench::measure::measure;
use crate::bench::measured::Measured;
use crate::machine::child::{bella, end_with_parent};
use crate::machine::wait;
use crate::schema::Choice;

/// The measurements of a case, or the reason why there are none.
pub type Outcome = std::result::Result<Measured, String>;

/// Joins the rounds of one case. A case that failed once stays failed.
pub fn joined(earlier: Option<Outcome>, latest: Outcome) -> Outcome {
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
pub fn child(args: &BenchArgs, source: &Source, choices: &Choices) -> Result<Outcome> {
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
pub fn alone(args: &BenchArgs, cases: &[(Source, Choices)]) -> Result<()> {
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
