//! Runs the stages of a rehearsal, each as a bella process of its own, so that a crash affects only its stage and is
//! reported.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::child::{self, Ended, Ending, KILL};
use super::plan::Plan;
use super::{Options, Scale};
use crate::machine::child::bella;
use crate::run::{Record, RunFolder};
use crate::schema::Choice;

/// The names of files in a run.
const POSTERIOR: &str = "posterior.safetensors";
const RESUME_FILE: &str = "resume.safetensors";

/// The outcome of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fine,
    /// bella reported that this machine is too small, and how much is needed.
    Refused(String),
    /// Something else went wrong.
    Broken(String),
    /// An earlier stage failed.
    NotReached,
}

/// The task of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes the stand-ins.
    Prepare,
    /// Trains until a resume file exists, and is then killed.
    Train,
    /// Continues the training to its end.
    Resume,
    /// Trains again without an interruption, for comparison.
    Uninterrupted,
    /// Evaluates the experiment's own test sets.
    Evaluate,
    /// Runs the evaluation with this index in the plan.
    Then(usize),
    Report,
}

/// A stage with its outcome and cost.
#[derive(Clone, Debug)]
pub struct Stage {
    pub kind: Kind,
    pub name: String,
    pub outcome: Outcome,
    pub seconds: f64,
    pub peak_bytes: Option<u64>,
    /// The seconds before the first image was read: program start, checkpoint, self-check, head.
    pub startup: Option<f64>,
    /// A remark for the report.
    pub note: String,
}

/// All stages, and the measurements for the estimate.
pub struct Rehearsed {
    pub stages: Vec<Stage>,
    pub training: Option<Trained>,
}

/// The measurements of the training.
#[derive(Clone, Debug)]
pub struct Trained {
    pub record: Record,
    /// The seconds of one step, if one was timed.
    pub step_seconds: Option<f64>,
    /// The seconds from the end of training to the end of the process, for fitting and writing.
    pub after_seconds: f64,
    /// The bytes of the posterior; `resume_bytes` are those of the resume file.
    pub posterior_bytes: u64,
    pub resume_bytes: u64,
    /// The bytes of the predictions on the stand-ins of the experiment's own test sets.
    pub prediction_bytes: u64,
}

/// Runs all stages.
///
/// # Errors
/// Fails if a child process cannot be started or the log cannot be written. A failure of a child itself is an outcome
/// and no error.
pub fn run(plan: &Plan, options: &Options, prepare: Command) -> Result<Rehearsed> {
    let mut all = Rehearsed { stages: Vec::new(), training: None };
    let runner = Runner { plan, options };
    let prepared = runner.stage(Title::new(Kind::Prepare, "stand-ins"), prepare, &mut all.stages)?;
    let trained = prepared && runner.train_and_resume(&mut all)?;
    if trained {
        runner.compare_with_uninterrupted(&mut all)?;
    }
    let evaluated = trained && runner.evaluate(&mut all)?;
    for (number, evaluation) in plan.evaluations.iter().enumerate() {
        let title = Title::new(Kind::Then(number), &evaluation.name);
        match (evaluated, runner.run_folder()) {
            (true, Some(run)) => {
                let mut command = runner.bella(&evaluation.command)?;
                command.arg(run).args(&evaluation.arguments);
                runner.stage(title, command, &mut all.stages)?;
            }
            _ => all.stages.push(title.not_reached()),
        }
    }
    let title = Title::new(Kind::Report, "report");
    if evaluated {
        let mut command = bella()?;
        command.arg("report").arg(plan.folder.results()).arg("--out").arg(plan.folder.own.join("report"));
        runner.stage(title, command, &mut all.stages)?;
    } else {
        all.stages.push(title.not_reached());
    }
    Ok(all)
}

/// The name of a stage, and which one it is.
struct Title {
    kind: Kind,
    name: String,
}

impl Title {
    fn new(kind: Kind, name: &str) -> Title {
        Title { kind, name: name.to_string() }
    }

    /// Returns the stage as one that is not reached.
    fn not_reached(self) -> Stage {
        let (outcome, note) = (Outcome::NotReached, String::new());
        Stage { kind: self.kind, name: self.name, outcome, seconds: 0.0, peak_bytes: None, startup: None, note }
    }

    /// Returns the stage whose process ended.
    fn ended(self, ended: &Ended) -> Stage {
        let startup = ended.said("checkpoint: ").filter(|_| self.kind != Kind::Prepare);
        let (seconds, peak_bytes) = (ended.seconds, ended.peak_bytes);
        Stage {
            kind: self.kind,
            name: self.name,
            outcome: outcome(ended),
            seconds,
            peak_bytes,
            startup,
            note: String::new(),
        }
    }
}

struct Runner<'a> {
    plan: &'a Plan,
    options: &'a Options,
}

impl Runner<'_> {
    /// Returns a bella command with the options that all commands share.
    fn bella(&self, command: &str) -> Result<Command> {
        self.bella_into(command, &self.plan.folder.results())
    }

    fn bella_into(&self, command: &str, results: &Path) -> Result<Command> {
        let mut bella = bella()?;
        bella.arg(command).arg("--device").arg(self.options.device.to_string());
        bella.arg("--out").arg(results);
        let Options { threads, wait, workers, memory, trust, .. } = self.options;
        bella.args(["--wait", wait.word()]);
        bella.args(threads.iter().flat_map(|n| ["--threads".to_string(), n.to_string()]));
        bella.args(workers.iter().flat_map(|n| ["--workers".to_string(), n.to_string()]));
        bella.args(memory.iter().flat_map(|gib| ["--memory".to_string(), gib.to_string()]));
        bella.args(trust.then_some("--trust"));
        bella.env("BELLA_CACHE", self.plan.folder.heads());
        Ok(bella)
    }

    fn train(&self, more: &[&str]) -> Result<Command> {
        self.train_into(&self.plan.folder.results(), more)
    }

    fn train_into(&self, results: &Path, more: &[&str]) -> Result<Command> {
        let mut command = self.bella_into("train", results)?;
        command.arg("--config").arg(self.plan.folder.config()).args(more);
        Ok(command)
    }

    /// Runs a stage to its end, and returns whether it ended well.
    fn stage(&self, title: Title, command: Command, stages: &mut Vec<Stage>) -> Result<bool> {
        tracing::info!("{}: {}", self.options.name, title.name);
        let ended = child::run(command, &self.plan.folder.log(), None)?;
        stages.push(title.ended(&ended));
        Ok(stages.last().is_some_and(|stage| stage.outcome == Outcome::Fine))
    }

    /// Trains until a resume file exists, kills the process and continues. Returns whether all went well.
    fn train_and_resume(&self, all: &mut Rehearsed) -> Result<bool> {
        tracing::info!("{}: train, save, kill", self.options.name);
        let saved = || self.run_folder().is_some_and(|run| run.join(RESUME_FILE).is_file());
        let ended = child::run(self.train(&["--no-eval"])?, &self.plan.folder.log(), Some(&saved))?;
        let mut first = Title::new(Kind::Train, "train, save, kill").ended(&ended);
        let resumed = Title::new(Kind::Resume, "resume");
        match ended.ending {
            Ending::Killed => first.note = "killed after the first resume file".into(),
            Ending::Exited(0) => first.note = "had finished before it could be killed".into(),
            _ => {}
        }
        let went_well = first.outcome == Outcome::Fine;
        all.stages.push(first);
        let Some(run) = self.run_folder().filter(|_| went_well) else {
            let why = "no run was left to resume".to_string();
            all.stages.push(Stage {
                outcome: if went_well { Outcome::Broken(why) } else { Outcome::NotReached },
                ..resumed.not_reached()
            });
            return Ok(false);
        };
        // A run that was too fast for the signal is resumed from the resume file of its last step.
        let _ = std::fs::remove_file(run.join(POSTERIOR));
        tracing::info!("{}: resume", self.options.name);
        let ended = child::run(self.train(&["--no-eval", "--resume"])?, &self.plan.folder.log(), None)?;
        let mut second = resumed.ended(&ended);
        if second.outcome == Outcome::Fine && ended.said("resuming after").is_none() {
            second.outcome = Outcome::Broken("it started anew instead of resuming from the resume file".into());
        }
        let went_well = second.outcome == Outcome::Fine;
        if went_well {
            let trained = self.trained(&run, &ended)?;
            second.note = format!("resumed to the end of {} steps", trained.record.steps);
            all.training = Some(trained);
        }
        all.stages.push(second);
        Ok(went_well)
    }

    /// Checks that a resumed run equals an uninterrupted one bit for bit. This is done only on the CPU, and not at true
    /// size, where a second training would take too long.
    fn compare_with_uninterrupted(&self, all: &mut Rehearsed) -> Result<()> {
        let on_cpu = all.training.as_ref().is_some_and(|trained| trained.record.device == "cpu");
        if self.options.scale == Scale::True || !on_cpu {
            return Ok(());
        }
        let results = self.plan.folder.uninterrupted();
        let title = Title::new(Kind::Uninterrupted, "uninterrupted");
        if !self.stage(title, self.train_into(&results, &["--no-eval"])?, &mut all.stages)? {
            return Ok(());
        }
        let posterior = |results: &Path| run_below(results).and_then(|run| std::fs::read(run.join(POSTERIOR)).ok());
        let (one, other) = (posterior(&self.plan.folder.results()), posterior(&results));
        if let Some(stage) = all.stages.last_mut() {
            match one.is_some() && one == other {
                true => stage.note = "the resumed run has the same posterior, bit for bit".into(),
                false => stage.outcome = Outcome::Broken("the resumed run has another posterior than this one".into()),
            }
        }
        Ok(())
    }

    /// Evaluates the test sets of the finished run, using the same command that trained it.
    fn evaluate(&self, all: &mut Rehearsed) -> Result<bool> {
        let fine = self.stage(Title::new(Kind::Evaluate, "evaluate"), self.train(&[])?, &mut all.stages)?;
        if let (true, Some(run), Some(trained)) = (fine, self.run_folder(), &mut all.training) {
            trained.prediction_bytes = folder_bytes(&run.join("predictions"));
        }
        Ok(fine)
    }

    fn run_folder(&self) -> Option<PathBuf> {
        run_below(&self.plan.folder.results())
    }

    fn trained(&self, run: &Path, ended: &Ended) -> Result<Trained> {
        let folder = RunFolder::find(&self.plan.folder.results(), run.to_str())?;
        let record = Record::read(&folder)?;
        let batch = self.plan.config.get("train").and_then(|train| train.get("batch_size")?.as_integer());
        let Some(batch) = batch else { bail!("the rehearsed config has no train.batch_size") };
        let images = (batch * record.particles) as f64;
        let step_seconds = Some(images / record.images_per_second).filter(|s| s.is_finite() && *s > 0.0);
        let trained_at = ended.said("epoch ").unwrap_or(ended.seconds);
        let bytes = |file: PathBuf| file.metadata().map_or(0, |meta| meta.len());
        Ok(Trained {
            step_seconds,
            after_seconds: ended.seconds - trained_at,
            posterior_bytes: bytes(folder.posterior()),
            resume_bytes: bytes(folder.resume_file()),
            prediction_bytes: 0,
            record,
        })
    }
}

/// Returns the only run below a rehearsal's results.
fn run_below(results: &Path) -> Option<PathBuf> {
    let inside = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    inside(results.join("runs")).flat_map(inside).find(|run| run.join("config.toml").is_file())
}

/// Returns the number of bytes of the files in a folder.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
}

/// Returns the outcome of a process. A message that memory or disk is too small is a finding and not a fault.
fn outcome(ended: &Ended) -> Outcome {
    match ended.ending {
        Ending::Exited(0) | Ending::Killed => Outcome::Fine,
        Ending::Exited(1) if is_refusal(&ended.last_words()) => Outcome::Refused(ended.last_words()),
        Ending::Exited(code) => Outcome::Broken(format!("exit code {code}: {}", ended.last_words())),
        Ending::Signalled(KILL) => {
            Outcome::Broken(format!("killed for memory (signal {KILL}): {}", ended.last_words()))
        }
        Ending::Signalled(signal) => Outcome::Broken(format!("ended by signal {signal}: {}", ended.last_words())),
    }
}

/// Returns whether a message says that memory or disk is too small. Such messages of bella name the amount that is
/// needed; those of libtorch and of the system have their own words.
fn is_refusal(line: &str) -> bool {
    let names_amount = line.contains(" need") && line.contains(" GiB");
    names_amount || ["out of memory", "No space left"].iter().any(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::super::child::Line;
    use super::*;

    #[test]
    fn endings_are_told_apart() {
        let ended = |ending, text: &str| Ended {
            ending,
            seconds: 1.0,
            peak_bytes: None,
            lines: vec![Line { at: 0.5, text: text.to_string() }],
        };
        let of = |ending, text: &str| outcome(&ended(ending, text));
        assert_eq!(of(Ending::Killed, "x"), Outcome::Fine);
        let refused = "step 1: out of memory: lower train.batch_size";
        assert_eq!(of(Ending::Exited(1), &format!("error: {refused}")), Outcome::Refused(refused.into()));
        assert_eq!(of(Ending::Exited(2), "error: seed"), Outcome::Broken("exit code 2: seed".into()));
        let planned = "step 1: 1 particle and one image at once need 9.0 GiB, but 2.0 GiB is free: use --device cpu";
        assert_eq!(of(Ending::Exited(1), &format!("error: {planned}")), Outcome::Refused(planned.into()));
        let killed = of(Ending::Signalled(9), "started");
        assert_eq!(killed, Outcome::Broken("killed for memory (signal 9): started".into()));
        assert_eq!(of(Ending::Signalled(11), "x"), Outcome::Broken("ended by signal 11: x".into()));
    }
}
