//! Commands with limits of time and memory, the faults in how they end, and campaigns of many of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time for one command, with room for a machine that is busy.
const LIMIT: Duration = Duration::from_secs(300);

/// The memory for commands on files of some kilobytes, libtorch itself included.
const MOST_KIB: u64 = 2 << 20;

/// A command that has ended.
pub struct Ended {
    pub code: i32,
    pub printed: String,
    pub said: String,
}

impl Ended {
    /// The only error line, or nothing.
    pub fn error(&self) -> &str {
        self.said.lines().find(|line| line.starts_with("error:")).unwrap_or_default()
    }

    /// Fails unless the exit code is one of `codes`.
    pub fn with_code(self, codes: &[i32]) -> Result<Ended, String> {
        if codes.contains(&self.code) {
            return Ok(self);
        }
        Err(format!("exit code {} where {codes:?} was expected: {}", self.code, self.said))
    }
}

/// Runs a command to its end. What it reads from standard input is empty; what it prints is kept, unless `printer` is the
/// file that gets it.
///
/// # Errors
/// Fails if it is ended by a signal, takes too long or too much memory, panics, or fails without an error line, or if its exit
/// code is 0 although it says an error.
pub fn ended(mut command: Command, printer: Option<File>) -> Result<Ended, String> {
    let (mut printed, mut said) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let printer = printer.unwrap_or_else(|| printed.try_clone().unwrap());
    command.stdin(Stdio::null()).stdout(printer).stderr(said.try_clone().unwrap());
    // Several threads that wait for each other take minutes where the machine is busy.
    command.env("OMP_NUM_THREADS", "1").env("OMP_WAIT_POLICY", "passive");
    let mut child = command.spawn().unwrap();
    let (begun, mut peak) = (Instant::now(), 0);
    let status = loop {
        peak = peak.max(peak_kib(child.id()));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if peak > MOST_KIB || begun.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            let why = if peak > MOST_KIB { "took too much memory" } else { "did not end" };
            return Err(format!("it {why}: {peak} KiB, {} s", begun.elapsed().as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [printed, said] = [&mut printed, &mut said].map(|file| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let errors = said.lines().filter(|line| line.starts_with("error:")).count();
    let fits = matches!((status.code(), errors), (Some(0), 0) | (Some(1 | 2), 1..));
    match status.code() {
        Some(code) if fits && !said.contains("panicked") => Ok(Ended { code, printed, said }),
        _ => Err(format!("it ended with {status} and {errors} error lines: {said}")),
    }
}

/// The most memory that a process has had, in KiB; 0 if that is not known.
fn peak_kib(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// `bella` with words, on one thread of the CPU if it computes.
pub fn bella<W: AsRef<std::ffi::OsStr>>(words: &[W]) -> Command {
    let program = std::env::var_os("TORTURE_BELLA").unwrap_or_else(|| env!("CARGO_BIN_EXE_bella").into());
    let mut command = Command::new(program);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(words);
    command
}

/// Runs the cases of a campaign, prints how many of each kind there were, and fails with all faults. A case has a kind and
/// words of its own.
#[track_caller]
pub fn campaign(what: &str, count: u64, mut case: impl FnMut(u64) -> (String, String, Result<(), String>)) {
    let (mut kinds, mut faults) = (BTreeMap::<String, u64>::new(), Vec::new());
    for number in 0..count {
        let (kind, words, outcome) = case(number);
        *kinds.entry(kind).or_default() += 1;
        if let Err(why) = outcome {
            faults.push(format!("{what} {number}, {words}: {why}"));
            println!("{}", faults[faults.len() - 1]);
        }
    }
    println!("{what}: {count}, {kinds:?}; {} faults", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
