//! Runs bella as a child process and records how it ended, how long it took, its peak memory, and what it printed when.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::base::small::for_shell;
use crate::machine::child::{end_with_parent, last_words};

/// The time between two checks of a running child. A resume file must be seen before the next step is over.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    /// The process was ended by a signal that the rehearsal did not send.
    Signalled(i32),
    /// The process was killed by the rehearsal, as asked.
    Killed,
}

/// A line of standard error.
#[derive(Clone, Debug)]
pub struct Line {
    /// The seconds since the process started.
    pub at: f64,
    pub text: String,
}

/// A process that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub ending: Ending,
    pub seconds: f64,
    /// The largest resident memory in bytes, if the system reports it.
    pub peak_bytes: Option<u64>,
    pub lines: Vec<Line>,
}

impl Ended {
    /// Returns the time of the first line that begins with `start`.
    pub fn said(&self, start: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.text.starts_with(start)).map(|line| line.at)
    }

    /// Returns the last error line without its `error: `, or else the last line.
    pub fn last_words(&self) -> String {
        last_words(self.lines.iter().map(|line| line.text.as_str()))
    }
}

/// Runs a command to its end, or kills it (SIGKILL) once `kill` returns true. The command and its output are written to
/// `log`.
///
/// # Errors
/// Fails if the command cannot be started, or if the log cannot be written.
pub fn run(mut command: Command, log: &Path, kill: Option<&dyn Fn() -> bool>) -> Result<Ended> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(log);
    let file = file.as_mut().map_err(|error| anyhow::anyhow!("{}: cannot write the log: {error}", log.display()))?;
    writeln!(file, "$ {}", shown(&command))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(Stdio::piped());
    end_with_parent(&mut command, KILL);
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(&command)))?;
    let stderr = child.stderr.take().context("a child has no standard error")?;
    let mut copy = file.try_clone()?;
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for text in BufReader::new(stderr).lines().map_while(Result::ok) {
            // A full disk must not stop the child.
            let _ = writeln!(copy, "{text}");
            lines.push(Line { at: started.elapsed().as_secs_f64(), text });
        }
        lines
    });
    let Waited { status, peak_bytes, killed } = wait(&mut child, kill)?;
    let seconds = started.elapsed().as_secs_f64();
    let Ok(lines) = reader.join() else { bail!("reading from a child failed") };
    Ok(Ended { ending: ending(status, killed), seconds, peak_bytes, lines })
}

/// Returns the command in a form that can be pasted into a shell.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| for_shell(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn ending(status: ExitStatus, killed: bool) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(KILL), _) if killed => Ending::Killed,
        (Some(signal), _) => Ending::Signalled(signal),
        (None, code) => Ending::Exited(code.unwrap_or(-1)),
    }
}

/// The number of the signal SIGKILL.
pub const KILL: i32 = 9;

/// The end of a child, and whether it was killed here.
struct Waited {
    status: ExitStatus,
    peak_bytes: Option<u64>,
    killed: bool,
}

/// Waits for the end of `child`.
fn wait(child: &mut Child, kill: Option<&dyn Fn() -> bool>) -> Result<Waited> {
    let mut killed = false;
    loop {
        if let Some((status, peak_bytes)) = ended(child)? {
            return Ok(Waited { status, peak_bytes, killed });
        }
        if !killed && kill.is_some_and(|kill| kill()) {
            child.kill().context("cannot kill a child")?;
            killed = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns the status and peak memory of a child if it has ended.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn ended(child: &mut Child) -> Result<Option<(ExitStatus, Option<u64>)>> {
    use std::os::unix::process::ExitStatusExt;
    let mut status = 0;
    // SAFETY: zeros are a valid rusage, and both pointers are to values that outlive the call.
    let (found, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(child.id() as libc::pid_t, &mut status, libc::WNOHANG, &mut usage), usage)
    };
    match found {
        0 => Ok(None),
        -1 => Err(std::io::Error::last_os_error()).context("cannot wait for a child"),
        // The value is in KiB on Linux.
        _ => Ok(Some((ExitStatus::from_raw(status), Some(usage.ru_maxrss as u64 * 1024)))),
    }
}

/// Returns the status of a child if it has ended; the peak memory is unknown on this system.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn ended(child: &mut Child) -> Result<Option<(ExitStatus, Option<u64>)>> {
    Ok(child.try_wait().context("cannot wait for a child")?.map(|status| (status, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn endings_and_last_words_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log.txt");
        let run = |script, kill: Option<&dyn Fn() -> bool>| run(shell(script), &log, kill).unwrap();
        let failed = run("echo out; echo one >&2; echo 'error: two' >&2; echo three >&2; exit 3", None);
        assert_eq!((failed.ending, failed.last_words().as_str()), (Ending::Exited(3), "two"));
        assert!(failed.said("one").is_some() && failed.said("nothing").is_none());
        assert_eq!(run("kill -9 $$", None).ending, Ending::Signalled(9));
        assert_eq!(run("exec sleep 60", Some(&|| true)).ending, Ending::Killed);
        assert_eq!(run("true", None).ending, Ending::Exited(0));
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.contains("out\n") && log.contains("$ sh -c 'exec sleep 60'\n"), "{log}");
    }
}
