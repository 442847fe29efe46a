//! Processes that bella starts: they end with their parent, and are asked to end by a signal.

use std::process::{Child, Command};

/// Makes the system send `signal` to the child if the thread that starts it dies.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn end_with_parent(command: &mut Command, signal: i32) {
    use std::os::unix::process::CommandExt;
    // SAFETY: prctl is safe between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::prctl(libc::PR_SET_PDEATHSIG, signal) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Does nothing, since this system cannot end a child together with its parent.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn end_with_parent(_: &mut Command, _: i32) {}

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

/// Returns what a child that failed said last: the last of its lines that is an error, without the word, or else its last
/// line.
pub fn last_words<'a>(lines: impl DoubleEndedIterator<Item = &'a str> + Clone) -> String {
    let error = lines.clone().rev().find_map(|line| line.strip_prefix("error: "));
    let last = lines.rev().find(|line| !line.trim().is_empty());
    error.or(last).unwrap_or("it said nothing").to_string()
}
