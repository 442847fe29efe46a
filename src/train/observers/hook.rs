//! The command of `train.on_epoch`: it gets the row of each epoch as one line of JSON on its standard input.
//!
//! It runs beside the next epoch, in a process group of its own, so that Ctrl-C saves the run and lets the command end, if that
//! takes no more than seconds. There is never more than one: the next waits for the one before.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use signal_hook::consts::SIGKILL;

use crate::experiment::{Experiment, TrainSpec};
use crate::machine::child::{OwnGroup, end_group, end_with_parent, own_group};
use crate::run::RunFolder;
use crate::schema::CommandLine;
use crate::train::progress::EpochRow;

/// The seconds after which the command is stopped unless `train.on_epoch_seconds` says otherwise.
const SECONDS: f64 = 60.0;

/// The time that a command still has once training is asked to stop: batch systems kill half a minute after they asked.
const AFTER_STOP: Duration = Duration::from_secs(5);

/// The time between two looks at the command.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The most bytes of what the command wrote last that a warning shows.
const LAST_BYTES: u64 = 200;

/// The command with the facts of the run.
pub struct Hook {
    command: CommandLine,
    limit: Limit,
    log: PathBuf,
    facts: Map<String, Value>,
    running: Option<JoinHandle<()>>,
}

/// The limit of the time that a command may run, which a stop of the training shortens.
#[derive(Clone)]
struct Limit {
    time: Duration,
    /// Set when training is asked to stop.
    stop: Arc<AtomicBool>,
}

impl Hook {
    pub fn new(
        command: CommandLine,
        spec: &TrainSpec,
        experiment: &Experiment,
        folder: &RunFolder,
        stop: Arc<AtomicBool>,
    ) -> Hook {
        let facts = json!({
            "experiment": experiment.name,
            "run": folder.id(),
            "folder": folder.path(),
            "seed": experiment.seed,
            "epochs": spec.epochs,
        });
        let Value::Object(facts) = facts else { unreachable!("it is written as an object") };
        let limit = Limit { time: Duration::from_secs_f64(spec.on_epoch_seconds.unwrap_or(SECONDS).min(1e9)), stop };
        Hook { command, limit, log: folder.hook_log(), facts, running: None }
    }

    /// Starts the command for an epoch.
    pub fn start(&mut self, row: &EpochRow) {
        self.wait();
        let (command, log, limit, epoch) = (self.command.clone(), self.log.clone(), self.limit.clone(), row.epoch);
        let text = line(&self.facts, row);
        self.running = Some(std::thread::spawn(move || {
            if let Err(error) = run(&command, &text, &log, &limit) {
                tracing::warn!("train.on_epoch: epoch {epoch}: {error:#}");
            }
        }));
    }

    /// Waits for the end of the command, if it runs.
    pub fn wait(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Returns the line that the command reads. What is not a number, or not finite, is null.
fn line(facts: &Map<String, Value>, row: &EpochRow) -> String {
    let mut all = facts.clone();
    all.extend(row.values().into_iter().map(|(column, value)| (column.to_string(), json!(value))));
    all.insert("epoch".into(), json!(row.epoch));
    all.insert("step".into(), json!(row.step));
    format!("{}\n", Value::Object(all))
}

/// Runs the command to its end.
///
/// # Errors
/// Fails if it cannot be started, if it does not end in time, or if it ends with another exit code than 0.
fn run(command: &CommandLine, line: &str, log: &Path, limit: &Limit) -> Result<()> {
    let out = OpenOptions::new().create(true).append(true).open(log);
    let out = out.with_context(|| format!("{}: cannot write", log.display()))?;
    let mut child = started(command, &out)?;
    // A command that does not read its input is no failure.
    let input = child.stdin.take();
    let line = line.to_string();
    let writer = std::thread::spawn(move || input.map(|mut input| input.write_all(line.as_bytes())));
    let status = ended(&mut child, limit)?;
    drop(writer);
    if status.success() { Ok(()) } else { bail!("{}{}", words(status), last_words(log)) }
}

/// Waits for the end of a command, and ends it with all that it has started where that takes too long.
fn ended(child: &mut Child, limit: &Limit) -> Result<ExitStatus> {
    let _group = OwnGroup::of(child);
    let begun = Instant::now();
    let mut stopped: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for it")? {
            return Ok(status);
        }
        if stopped.is_none() && limit.stop.load(Ordering::Relaxed) {
            stopped = Some(Instant::now());
        }
        let late = if begun.elapsed() >= limit.time {
            format!("it did not end within {} s and was stopped (train.on_epoch_seconds)", limit.time.as_secs_f64())
        } else if stopped.is_some_and(|stopped| stopped.elapsed() >= AFTER_STOP) {
            format!("it did not end within {} s after training was stopped, and was ended", AFTER_STOP.as_secs())
        } else {
            std::thread::sleep(LOOK_EVERY);
            continue;
        };
        end_group(child);
        let _ = child.wait();
        bail!("{late}");
    }
}

fn started(command: &CommandLine, out: &File) -> Result<Child> {
    let (mut process, name) = match command {
        CommandLine::Shell(line) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            (shell, line)
        }
        CommandLine::Program(words) => {
            let mut program = Command::new(&words[0]);
            program.args(&words[1..]);
            (program, &words[0])
        }
    };
    own_group(&mut process);
    // The thread that starts it waits for its end.
    end_with_parent(&mut process, SIGKILL);
    process.stdin(Stdio::piped()).stdout(out.try_clone()?).stderr(out.try_clone()?);
    process.spawn().with_context(|| format!("cannot start `{name}`"))
}

fn words(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

/// Returns the last line that the command wrote, and where to find the others.
fn last_words(log: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
        let mut bytes = vec![];
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    match text.lines().rfind(|line| !line.trim().is_empty()) {
        Some(last) => format!(": {} ({})", last.trim(), log.display()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch() -> EpochRow {
        EpochRow {
            epoch: 2,
            step: 8,
            rate_factor: 0.5,
            train_loss: f64::NAN,
            validation_nll: Some(0.25),
            validation_accuracy: None,
            validation_ece: None,
            validation_other: None,
            diagnostics: vec![("bandwidth".into(), 3.0)],
            wall_seconds: 1.5,
            images_per_second: None,
            has_posterior: true,
        }
    }

    #[test]
    fn the_line_is_json_without_numbers_that_json_lacks() {
        let facts = Map::from_iter([("run".to_string(), json!("r"))]);
        let text = line(&facts, &epoch());
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["run"], &read["epoch"], &read["step"]), (&json!("r"), &json!(2), &json!(8)));
        assert_eq!((&read["train_loss"], &read["validation_accuracy_lm"]), (&Value::Null, &Value::Null));
        assert_eq!((&read["validation_nll_lm"], &read["bandwidth"]), (&json!(0.25), &json!(3.0)));
    }

    #[cfg(unix)]
    #[test]
    fn failures_are_told_with_code_and_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("on_epoch.log");
        let shell = |line: &str| CommandLine::Shell(line.into());
        let within = |time: Duration| Limit { time, stop: Arc::default() };
        let long = &within(Duration::from_secs(30));
        run(&shell("cat"), "row\n", &log, long).unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "row\n");
        run(&shell("exit 0"), &"x".repeat(1 << 20), &log, long).unwrap();
        let failed = run(&shell("echo no key >&2; exit 3"), "row\n", &log, long).unwrap_err().to_string();
        assert!(failed.starts_with("exit code 3: no key (") && failed.ends_with("on_epoch.log)"), "{failed}");
        let missing = run(&CommandLine::Program(vec!["no-such-program".into()]), "", &log, long).unwrap_err();
        assert!(format!("{missing:#}").starts_with("cannot start `no-such-program`: No such file"), "{missing:#}");
        let started = Instant::now();
        let slow =
            run(&shell("sleep 60 & wait"), "", &log, &within(Duration::from_millis(50))).unwrap_err().to_string();
        assert_eq!(slow, "it did not end within 0.05 s and was stopped (train.on_epoch_seconds)");
        assert!(started.elapsed() < Duration::from_secs(30), "the children of the shell are stopped, too");
        long.stop.store(true, Ordering::Relaxed);
        run(&shell("sleep 0.1"), "", &log, long).unwrap();
    }
}
