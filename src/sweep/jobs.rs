//! The training of trials side by side, each in a process of its own with its share of the machine.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Write;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::SIGTERM;

use super::trial::{Base, Trial};
use super::trial::{Claim, Claims};
use crate::base::files::write_atomic;
use crate::machine::Wait;
use crate::machine::child::{self, ask_to_end, end_with_parent};
use crate::machine::cores;
use crate::machine::device::DeviceChoice;
use crate::run::TRAINED_ELSEWHERE;
use crate::schema::Choice;

/// The time between two looks at the children.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time between two looks at trials that other processes train.
const LOOK_AT_OTHERS_EVERY: Duration = Duration::from_millis(200);

/// The part of the machine that each job may use.
#[derive(Clone, Debug)]
pub struct Share {
    /// The device of each job; their number is that of the jobs side by side.
    pub devices: Vec<DeviceChoice>,
    /// The threads of libtorch of each job.
    pub threads: usize,
    /// The way in which the threads of each job wait for each other.
    pub wait: Wait,
    /// The threads that decode images of each job.
    pub workers: usize,
    /// The memory of each job in GiB.
    pub memory: Option<f64>,
    /// Whether archives are loaded whatever they call.
    pub trust: bool,
}

/// Returns the cores of each of `jobs` processes that share this machine: at least one.
pub fn cores_each(jobs: usize) -> usize {
    (cores() / jobs.max(1)).max(1)
}

/// The commands that train trials.
pub struct Launcher<'a> {
    pub base: &'a Base,
    pub share: &'a Share,
    /// Whether the trials that wait are trained together by one process.
    pub packed: bool,
    pub out: &'a Path,
    /// The folder of the logs.
    pub logs: &'a Path,
    pub claims: &'a Claims,
}

/// Trials that a process trains, on the device of this number.
struct Running {
    trials: Vec<Claimed>,
    device: usize,
    child: Child,
    log: PathBuf,
}

/// The way in which a process ended, and its log.
struct Ending<'a> {
    status: ExitStatus,
    log: &'a Path,
}

/// The number of a trial in the queue, with the right to train it.
struct Claimed {
    at: usize,
    claim: Claim,
}

/// The trials of a rung: those that wait, those that are being trained, and the devices that are free.
struct Queue<'a> {
    /// The trials, each with the epoch up to which it is trained.
    tasks: &'a [(&'a Trial, usize)],
    waiting: VecDeque<usize>,
    free: Vec<usize>,
    running: Vec<Running>,
    /// The trials that were started once more, since a signal had ended their process.
    restarted: Vec<usize>,
    /// The time of the next look at the trials that wait.
    next_look: Instant,
    /// Whether a stop was requested, so that no further trial is started.
    stopping: bool,
}

/// A function that is told of each trial that has ended, with the reason if it failed, and the log that says more.
pub type Report<'a> = dyn FnMut(&Trial, Option<String>, &Path) -> Result<()> + 'a;

/// The way in which the training of trials ended.
pub enum Ended {
    All,
    /// A stop was requested; the runs are saved.
    Stopped,
}

impl Launcher<'_> {
    /// Trains trials up to an epoch each, as many at a time as there are devices, and reports each one's end: nothing, or
    /// why it failed. Trials that another process trains are waited for.
    ///
    /// # Errors
    /// Fails if a process cannot be started or a log cannot be written.
    pub fn train(&self, tasks: &[(&Trial, usize)], stop: &AtomicBool, report: &mut Report) -> Result<Ended> {
        let mut queue = Queue {
            tasks,
            waiting: (0..tasks.len()).collect(),
            free: (0..self.share.devices.len()).rev().collect(),
            running: Vec::new(),
            restarted: Vec::new(),
            next_look: Instant::now(),
            stopping: false,
        };
        loop {
            if stop.load(Ordering::Relaxed) && !queue.stopping {
                queue.running.iter_mut().for_each(|one| ask_to_end(&mut one.child));
                queue.stopping = true;
            }
            self.fill(&mut queue, report)?;
            self.collect(&mut queue, report)?;
            match (queue.running.is_empty(), queue.stopping, queue.waiting.is_empty()) {
                (true, true, _) => return Ok(Ended::Stopped),
                (true, false, true) => return Ok(Ended::All),
                _ => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Starts waiting trials on the devices that are free, and reports those that other processes have trained.
    fn fill(&self, queue: &mut Queue, report: &mut Report) -> Result<()> {
        if Instant::now() < queue.next_look {
            return Ok(());
        }
        let mut claimed = Vec::new();
        for _ in 0..queue.waiting.len() {
            if queue.stopping || queue.free.is_empty() {
                break;
            }
            let Some(at) = queue.waiting.pop_front() else { break };
            let (trial, epochs) = queue.tasks[at];
            let claim = if self.is_decided(trial, epochs) { None } else { self.claim(trial)? };
            // Another process may have trained it until its claim was free.
            if self.is_decided(trial, epochs) {
                let why = self.claims.why_failed(trial, epochs).filter(|_| !trial.has_trained(epochs));
                // It is not known which trials another process has trained together.
                report(trial, why, &if self.packed { self.logs.to_path_buf() } else { self.logs.join(log_of(trial)) })?;
                continue;
            }
            match claim {
                Some(claim) => claimed.push(Claimed { at, claim }),
                None => queue.waiting.push_back(at),
            }
            if !self.packed && !claimed.is_empty() {
                self.start(queue, take(&mut claimed))?;
            }
        }
        if !claimed.is_empty() {
            self.start(queue, claimed)?;
        }
        queue.next_look = Instant::now() + LOOK_AT_OTHERS_EVERY;
        Ok(())
    }

    /// Returns whether a trial needs no training to be judged, or has failed in another process.
    fn is_decided(&self, trial: &Trial, epochs: usize) -> bool {
        trial.has_trained(epochs) || self.claims.why_failed(trial, epochs).is_some()
    }

    /// Claims a trial, unless another process has it or trains its run: one of this search, another search, `bella train`, or
    /// what a killed search has started, which saves.
    fn claim(&self, trial: &Trial) -> Result<Option<Claim>> {
        let claim = self.claims.take(trial)?;
        Ok(claim.filter(|_| !trial.run.is_locked()))
    }

    /// Reports the trials whose processes have ended, and frees their devices.
    fn collect(&self, queue: &mut Queue, report: &mut Report) -> Result<()> {
        for mut one in std::mem::take(&mut queue.running) {
            match one.child.try_wait().context("cannot wait for a trial")? {
                None => queue.running.push(one),
                Some(status) => {
                    queue.free.push(one.device);
                    queue.next_look = Instant::now();
                    for Claimed { at, claim } in one.trials {
                        self.settle(queue, at, &Ending { status, log: &one.log }, report)?;
                        drop(claim);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reports a trial whose process has ended. The trial waits again where another process trains it, and once where a signal, such as that
    /// of a system without memory, ended its process, which says nothing of its settings.
    fn settle(&self, queue: &mut Queue, at: usize, ending: &Ending, report: &mut Report) -> Result<()> {
        let (trial, epochs) = queue.tasks[at];
        let status = ending.status;
        // A process of several trials fails if one of them does.
        let is_trained = status.success() || (self.packed && trial.has_trained(epochs));
        let signal = child::ending_signal(status);
        let by_signal = || signal.as_ref().map(|signal| format!("its process was ended by {signal}"));
        let why = || by_signal().unwrap_or_else(|| last_words(ending.log, &trial.run.id()));
        match (!is_trained).then(why) {
            // Trials that were asked to end have not failed.
            _ if queue.stopping => {}
            Some(why) if signal.is_some() && !queue.restarted.contains(&at) => {
                tracing::warn!("trial {}: {why}, so it goes on in another one", trial.number);
                queue.restarted.push(at);
                queue.waiting.push_back(at);
            }
            // `bella train` was faster.
            Some(why) if why.ends_with(TRAINED_ELSEWHERE) => queue.waiting.push_back(at),
            failed => {
                failed.iter().try_for_each(|why| self.claims.fail(trial, epochs, why))?;
                report(trial, failed, ending.log)?;
            }
        }
        Ok(())
    }

    /// Starts a process that trains these trials on a free device.
    fn start(&self, queue: &mut Queue, claimed: Vec<Claimed>) -> Result<()> {
        let (Some(device), Some(first)) = (queue.free.pop(), claimed.first()) else { return Ok(()) };
        let (trial, epochs) = queue.tasks[first.at];
        let trials: Vec<&Trial> = claimed.iter().map(|one| queue.tasks[one.at].0).collect();
        let log = self.logs.join(if self.packed { format!("{}.log", packed(&trials)) } else { log_of(trial) });
        let child = self.spawn(self.command(&trials, epochs, device)?, &log)?;
        queue.running.push(Running { trials: claimed, device, child, log });
        Ok(())
    }

    fn spawn(&self, mut command: Command, path: &Path) -> Result<Child> {
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("{}: cannot write the log", path.display()))?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        writeln!(log, "$ {}", words.join(" "))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C in a terminal reaches bella alone, which asks each trial once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        end_with_parent(&mut command, SIGTERM);
        command.spawn().context("cannot start the training of a trial")
    }

    /// Returns the command that trains trials up to an epoch.
    fn command(&self, trials: &[&Trial], epochs: usize, device: usize) -> Result<Command> {
        let mut command = child::bella()?;
        command.arg("train");
        for file in &self.base.configs {
            command.arg("--config").arg(file);
        }
        // What all trials share comes first among the overrides of each.
        let shared = self.base.sets.len();
        let alone = if let [only] = trials { &only.sets[shared..] } else { &[] };
        for set in self.base.sets.iter().chain(alone) {
            command.arg("--set").arg(set);
        }
        for key in &self.base.unsets {
            command.arg("--unset").arg(key);
        }
        if trials.len() > 1 {
            let own: Vec<&[String]> = trials.iter().map(|trial| &trial.sets[shared..]).collect();
            let (path, text) = (self.logs.join(format!("{}.json", packed(trials))), serde_json::to_string(&own)?);
            write_atomic(&path, |file| Ok(file.write_all(text.as_bytes())?))?;
            command.arg("--variants").arg(path);
        }
        if trials.iter().any(|trial| epochs < trial.epochs) {
            command.arg("--until-epoch").arg(epochs.to_string());
        }
        let Share { devices, threads, wait, workers, memory, trust } = self.share;
        let sweep = self.logs.file_name().context("the folder of a sweep has no name")?;
        command.arg("--trial").arg(sweep);
        command.args(["--no-eval", "--device", &devices[device].to_string()]).arg("--out").arg(self.out);
        command.args(["--threads", &threads.to_string(), "--workers", &workers.to_string(), "--wait", wait.word()]);
        // The pool that computes metrics has a thread for each core otherwise.
        command.env("RAYON_NUM_THREADS", threads.to_string());
        if let Some(gib) = memory {
            command.arg("--memory").arg(format!("{gib:.3}"));
        }
        if *trust {
            command.arg("--trust");
        }
        Ok(command)
    }
}

/// Returns the name of the files about trials that are trained together. Other processes train other trials of the same search.
fn packed(trials: &[&Trial]) -> String {
    format!("packed-{}", trials.iter().map(|trial| trial.number).min().unwrap_or_default())
}

/// Returns the name of the log of a trial that is trained alone.
fn log_of(trial: &Trial) -> String {
    format!("trial-{}.log", trial.number)
}

/// Returns what the last command of a log said last, or what it said of the failure of this run alone.
fn last_words(log: &Path, run: &str) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().rposition(|line| line.starts_with("$ ")).map_or(0, |command| command + 1);
    let of_run = format!("error: {run}: ");
    let alone = lines[start..].iter().rev().find_map(|line| line.strip_prefix(&of_run));
    alone.map_or_else(|| child::last_words(lines[start..].iter().copied()), str::to_string)
}
