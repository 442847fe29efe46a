//! Processes that bella starts, which end with their parent and are asked to end by a signal; and the end of bella's own process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

/// The variable that tells a bella process which parent it is to end with, on systems that do not see to that.
const PARENT: &str = "BELLA_PARENT";

/// The time between two looks at the parent.
const LOOK_EVERY: Duration = Duration::from_millis(500);

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that runs from now on where bella starts itself: one that calls [`crate::cli::run`] with its own command line.
pub fn start_by(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Returns the program that has been named by [`start_by`].
pub fn named_program() -> Option<&'static Path> {
    PROGRAM.get().map(PathBuf::as_path)
}

/// Returns a command that starts bella, without arguments: the named program, or else that of this process.
///
/// # Errors
/// Fails if the system does not know the program of this process.
pub fn bella() -> Result<Command> {
    match named_program() {
        Some(program) => Ok(Command::new(program)),
        None => Ok(Command::new(std::env::current_exe().context("cannot tell where bella itself is")?)),
    }
}

/// Makes the system send `signal` to the child if the thread that starts it dies, also if that has died before the child
/// could ask for it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn end_with_parent(command: &mut Command, signal: i32) {
    use std::os::unix::process::CommandExt;
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: prctl and getppid are safe between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::prctl(libc::PR_SET_PDEATHSIG, signal) {
            0 if libc::getppid() == parent => Ok(()),
            0 => Err(std::io::ErrorKind::BrokenPipe.into()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Tells the child, if it is bella itself, to watch this process: the system has no way to end them together.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn end_with_parent(command: &mut Command, signal: i32) {
    command.env(PARENT, format!("{} {signal}", std::process::id()));
}

/// Makes this process get the signal that its parent has asked for once the parent is gone. Only where
/// [`end_with_parent`] cannot have the system do it does a parent ask for one.
#[cfg(unix)]
pub fn watch_parent() {
    use std::os::unix::process::parent_id;
    let asked = std::env::var(PARENT).ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(' '));
    let Some((parent, signal)) =
        asked.and_then(|(parent, signal)| Some((parent.parse::<u32>().ok()?, signal.parse::<i32>().ok()?)))
    else {
        return;
    };
    // A process that a child starts in its turn has inherited the variable.
    if parent_id() != parent {
        return;
    }
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = signal_hook::low_level::raise(signal);
    });
}

/// Does nothing, since this system has no such signals.
#[cfg(not(unix))]
pub fn watch_parent() {}

/// Asks a child that has not been waited for to save and end (SIGTERM). An error means that it has already ended.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn ask_to_end(child: &mut Child) {
    // SAFETY: the child has not been waited for, so its number belongs to no other process.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// Ends a child, which resumes from its last resume file, since this system has no other way.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn ask_to_end(child: &mut Child) {
    let _ = child.kill();
}

/// Makes a command the first of a process group of its own, which does not get the signals of the terminal.
#[cfg(unix)]
pub fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

/// Does nothing, since this system has no process groups.
#[cfg(not(unix))]
pub fn own_group(_: &mut Command) {}

/// Ends a child of its own group, together with the processes that it has started.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn end_group(child: &mut Child) {
    // SAFETY: the child has not been waited for, so its number belongs to no other group.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
}

/// Ends a child alone, since this system has no other way.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn end_group(child: &mut Child) {
    let _ = child.kill();
}

/// The numbers of the groups that are to end where this process ends at once.
static GROUPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A child's group while its child is waited for.
pub struct OwnGroup(u32);

impl OwnGroup {
    /// Notes a child that is the first of its group ([`own_group`]). The note must be dropped soon after the child was waited for.
    pub fn of(child: &Child) -> OwnGroup {
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).push(child.id());
        OwnGroup(child.id())
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| *id != self.0);
    }
}

/// Ends all groups that are noted, with what the children have started, since this process ends at once.
#[cfg(unix)]
pub fn end_groups() {
    for id in GROUPS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // SAFETY: the child is being waited for, so its number belongs to no other group.
        unsafe { libc::kill(-(id as libc::pid_t), libc::SIGKILL) };
    }
}

/// Limits what this process may take from now on: `bytes` of memory beside what it has, small files, and no picture of its
/// memory when it ends.
///
/// # Errors
/// Fails if the system refuses a limit.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn limit_this_process(bytes: u64) -> std::io::Result<()> {
    const FILES: u64 = 1 << 20;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let held = status.lines().find_map(|line| line.strip_prefix("VmData:")?.split_whitespace().next()?.parse().ok());
    let held: u64 = held.unwrap_or(0) << 10;
    for (resource, most) in
        [(libc::RLIMIT_DATA, held.saturating_add(bytes)), (libc::RLIMIT_FSIZE, FILES), (libc::RLIMIT_CORE, 0)]
    {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the call reads the limit, which outlives it.
        if unsafe { libc::setrlimit(resource, &limit) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Returns how a process ended that did not end by itself, such as "signal 8 (SIGFPE)"; `None` if it did.
#[cfg(unix)]
pub fn ending_signal(status: std::process::ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    let number = status.signal()?;
    let name = match number {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        _ => "",
    };
    Some(format!("signal {number}{name}"))
}

/// Returns `None`, since this system has no signals.
#[cfg(not(unix))]
pub fn ending_signal(_: std::process::ExitStatus) -> Option<String> {
    None
}

/// Returns what a child that failed said last: the last of its lines that is an error, without the word, or else its last
/// line.
pub fn last_words<'a>(lines: impl DoubleEndedIterator<Item = &'a str> + Clone) -> String {
    let error = lines.clone().rev().find_map(|line| line.strip_prefix("error: "));
    let last = lines.rev().find(|line| !line.trim().is_empty());
    error.or(last).unwrap_or("it said nothing").to_string()
}

/// Makes the process end without the static destructors of its libraries, once `main` has returned and Rust has written
/// what it printed. Libtorch would take every operator out of its tables again, a third of the time of `bella --help`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn skip_static_destructors() {
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(libc::c_int, *mut libc::c_void), argument: *mut libc::c_void)
        -> libc::c_int;
    }
    extern "C" fn leave(code: libc::c_int, _: *mut libc::c_void) {
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(code) }
    }
    // SAFETY: `leave` ignores its argument. Handlers run in reverse order, so it runs before the destructors of the
    // libraries, which were loaded earlier.
    unsafe {
        on_exit(leave, std::ptr::null_mut());
    }
}

/// Does nothing, since only glibc tells a handler the exit code.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn skip_static_destructors() {}
