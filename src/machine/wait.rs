//! The way in which the threads of libtorch wait for each other.
//!
//! At the end of an operation, a thread of OpenMP spins for some milliseconds before it sleeps. That is the fastest way on
//! a machine that does nothing else. Where other processes want the same cores, a thread that spins keeps a core from the
//! very thread for which it waits. The OpenMP library reads its environment once, when it is loaded, which is before
//! `main`. So a process that shall wait in another way sets the environment and executes its program again, under the
//! same process ID.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::schema::{Choice, words};

words! {
    /// The way in which threads wait for each other.
    pub enum Wait {
        /// Passive on a machine that is busy when the command starts.
        Auto = "auto",
        /// Spin for some milliseconds, then sleep: the fastest alone.
        Active = "active",
        /// Sleep at once: the fastest beside other processes.
        Passive = "passive",
    }
}

/// The variable of the OpenMP standard, and GNU's own, which overrides it.
const POLICY: &str = "OMP_WAIT_POLICY";
const SPINS: &str = "GOMP_SPINCOUNT";

/// The variable by which a process that executes itself again tells its second life why, after its process ID. Children
/// inherit it, but have another ID.
const REASON: &str = "BELLA_WAIT";

/// The load of the machine when this process looked.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The mean number of other tasks that ran or wanted to.
    others: f64,
    /// The number of cores of the machine.
    cores: usize,
}

impl Load {
    /// Returns whether `threads` more threads would have to share cores with the others. Half a task is the share of
    /// short-lived ones that every machine has.
    fn is_full_with(self, threads: usize) -> bool {
        threads as f64 + self.others >= self.cores as f64 + 0.5
    }
}

/// Makes the threads of this process wait in the way that is asked for. The program may start again from its beginning
/// for that; so this must be called before it has done anything. [`announce`] says why.
pub fn settle(asked: Wait, threads: usize) {
    if second_life().is_some() {
        return;
    }
    let set = [POLICY, SPINS].iter().any(|name| std::env::var_os(name).is_some());
    let Some((wait, reason)) = decide(asked, Environment { set, now: of_environment() }, threads, load) else { return };
    let Err(error) = start_again(wait, &reason);
    tracing::warn!("threads wait as before: {error:#}");
}

/// Says once why threads wait in another way than usual, when their work begins.
pub fn announce() {
    static SAID: Once = Once::new();
    SAID.call_once(|| second_life().iter().for_each(|reason| tracing::info!("{reason}")));
}

/// Returns how threads wait by the environment of this process.
pub fn of_environment() -> Wait {
    let variable = |name| std::env::var(name).ok();
    let is_passive = match variable(SPINS) {
        Some(spins) => spins.trim() == "0",
        None => variable(POLICY).is_some_and(|policy| policy.trim().eq_ignore_ascii_case("passive")),
    };
    if is_passive { Wait::Passive } else { Wait::Active }
}

/// The way in which the threads of this process wait, and whether the user has decided it.
#[derive(Clone, Copy)]
struct Environment {
    /// Whether the user's environment decides how threads wait, which holds unless the command line does.
    set: bool,
    /// The way in which they wait now.
    now: Wait,
}

/// Returns the way in which the threads should wait, and why, if it is another than now.
fn decide(
    asked: Wait,
    Environment { set, now }: Environment,
    threads: usize,
    load: impl Fn() -> Option<Load>,
) -> Option<(Wait, String)> {
    match asked {
        Wait::Auto if set || threads < 2 => None,
        Wait::Auto => {
            let load = load().filter(|load| load.is_full_with(threads))?;
            let Load { others, cores } = load;
            let reason = format!(
                "threads wait passively: {others:.1} other tasks run on this machine's {cores} cores (--wait active: spin \
                 all the same)"
            );
            Some((Wait::Passive, reason))
        }
        asked => (asked != now).then(|| (asked, format!("threads wait as --wait {} asks", asked.word()))),
    }
}

/// Returns the load of this moment: the mean over some milliseconds. The system's average over a minute would count the
/// command before this one, which is over, and miss the one that started just now.
fn load() -> Option<Load> {
    const LOOKS: u32 = 10;
    const APART: Duration = Duration::from_millis(5);
    let mut others = 0.0;
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(APART);
        }
        others += other_tasks(&std::fs::read_to_string("/proc/loadavg").ok()?)? / f64::from(LOOKS);
    }
    Some(Load { others, cores: cores()? })
}

/// Returns the number of runnable tasks besides this thread by the text of `/proc/loadavg`: `0.42 0.36 0.31 3/128 4711`
/// has three.
fn other_tasks(loadavg: &str) -> Option<f64> {
    let (running, _) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    Some((running.parse::<f64>().ok()? - 1.0).max(0.0))
}

/// Returns the number of cores of the whole machine, to which the number of running tasks belongs; a process may be
/// allowed fewer.
fn cores() -> Option<usize> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let is_core =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    Some(stat.lines().filter(is_core).count()).filter(|count| *count > 0)
}

/// Returns the reason for which this process has executed its program again, if it has.
fn second_life() -> Option<String> {
    let text = std::env::var(REASON).ok()?;
    let (id, reason) = text.split_once(' ')?;
    (id == std::process::id().to_string()).then(|| reason.to_string())
}

/// Executes this program again with the same arguments and threads that wait as `wait` says.
fn start_again(wait: Wait, reason: &str) -> Result<Infallible> {
    let program = std::env::current_exe().context("cannot tell where bella itself is")?;
    let mut words = std::env::args_os();
    let mut command = Command::new(program);
    command.arg0(words.next().unwrap_or_default()).args(words);
    command.env_remove(SPINS).env_remove(POLICY).env(REASON, format!("{} {reason}", std::process::id()));
    if wait == Wait::Passive {
        command.env(POLICY, "passive");
    }
    Err(command.exec()).context("starting the program again")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSET: Environment = Environment { set: false, now: Wait::Active };
    const SET: Environment = Environment { set: true, ..UNSET };
    const SET_PASSIVE: Environment = Environment { now: Wait::Passive, ..SET };

    fn chosen(asked: Wait, environment: Environment, threads: usize, others: f64) -> Option<Wait> {
        decide(asked, environment, threads, || Some(Load { others, cores: 4 })).map(|(wait, _)| wait)
    }

    #[test]
    fn a_process_waits_passively_where_its_threads_would_share_cores() {
        assert_eq!(chosen(Wait::Auto, UNSET, 4, 0.0), None);
        assert_eq!(chosen(Wait::Auto, UNSET, 4, 0.4), None);
        assert_eq!(chosen(Wait::Auto, UNSET, 4, 0.5), Some(Wait::Passive));
        assert_eq!(chosen(Wait::Auto, UNSET, 2, 2.0), None);
        assert_eq!(chosen(Wait::Auto, UNSET, 2, 3.0), Some(Wait::Passive));
        // one thread waits for none
        assert_eq!(chosen(Wait::Auto, UNSET, 1, 9.0), None);
        assert_eq!(decide(Wait::Auto, UNSET, 4, || None), None);
    }

    #[test]
    fn the_command_line_goes_before_the_environment_which_goes_before_the_load() {
        assert_eq!(chosen(Wait::Auto, SET, 4, 9.0), None);
        assert_eq!(chosen(Wait::Active, SET_PASSIVE, 4, 9.0), Some(Wait::Active));
        assert_eq!(chosen(Wait::Active, UNSET, 4, 9.0), None);
        assert_eq!(chosen(Wait::Passive, UNSET, 4, 0.0), Some(Wait::Passive));
        assert_eq!(chosen(Wait::Passive, SET_PASSIVE, 4, 0.0), None);
    }

    #[test]
    fn the_message_names_load_and_way_out() {
        let (_, reason) = decide(Wait::Auto, UNSET, 4, || Some(Load { others: 2.25, cores: 4 })).unwrap();
        assert!(reason.contains("2.2 other tasks run on this machine's 4 cores (--wait active"), "{reason}");
    }

    #[test]
    fn other_tasks_are_read() {
        assert_eq!(other_tasks("3.44 2.29 1.97 4/126 18535\n"), Some(3.0));
        assert_eq!(other_tasks("0.00 0.00 0.00 0/126 18535\n"), Some(0.0));
        assert_eq!(other_tasks("0.00"), None);
    }
}
