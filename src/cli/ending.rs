//! The ways in which a command ends: it fails by a mistake of the user or another error, or a signal ends it.
//!
//! Ctrl-C, SIGTERM, SIGUSR1 (which batch systems send before the time limit) and SIGHUP (the terminal is gone) are handled alike in
//! every command: a line says what is saved, and the exit code is 1. One thread waits for signals. What it does with one changes while a
//! command runs: it ends the process at once, or asks a training loop to save and end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::{mem, ptr};

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::base::small::Usage;
use crate::machine::child::end_groups;
use crate::machine::parallel::ProcessGroup;
use crate::run::Ambiguous;
use crate::schema::Problems;

/// The error of training that a signal has stopped, in all of its processes.
#[derive(Debug)]
pub struct Stopped(pub String);

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stopped {}

/// Logs every mistake as a separate error.
pub fn print_problems(problems: &Problems) {
    problems.to_string().lines().for_each(|line| tracing::error!("{line}"));
}

/// Logs an error and returns the exit code.
pub fn fail(error: &anyhow::Error) -> u8 {
    if let Some(problems) = error.downcast_ref::<Problems>() {
        print_problems(problems);
        return 2;
    }
    let text = format!("{error:#}");
    tracing::debug!("{text}");
    if let Some(Ambiguous { runs, .. }) = error.downcast_ref() {
        runs.iter().for_each(|run| tracing::info!("{run}"));
    }
    tracing::error!("{}", one_line(&text));
    if error.is::<Usage>() { 2 } else { 1 }
}

/// Returns a message as one line, without the trace that libtorch appends; that goes to the debug log. Line ends inside
/// names are escaped.
fn one_line(text: &str) -> String {
    let ends = ["\nException raised from", "\nframe #", "\nThe following operation failed", "\n\n"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    text[..end].replace('\n', "\\n")
}

/// The answer to the next signal.
enum Response {
    /// End at once with a message, after some work.
    End { saved: String, last: Box<dyn FnOnce() + Send> },
    /// Set a flag, and say so. A second Ctrl-C or SIGTERM ends the process, if it is alone.
    Ask { stop: Arc<AtomicBool>, alone: bool },
    /// End without a message, as in all processes but the first.
    Leave,
}

static NEXT: Mutex<Response> = Mutex::new(Response::Leave);
static STARTED: Once = Once::new();

/// Makes signals end the process from now on, with a message that says what is saved. `last` is called before.
///
/// # Errors
/// Fails if a signal cannot be handled.
pub fn end_at_once(saved: &str, last: impl FnOnce() + Send + 'static) -> Result<()> {
    respond(Response::End { saved: saved.to_string(), last: Box::new(last) })
}

/// Returns a flag that signals set from now on. In a single process, a second Ctrl-C or SIGTERM ends the process at once.
///
/// # Errors
/// Fails if a signal cannot be handled.
pub fn stop(group: &ProcessGroup) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    respond(Response::Ask { stop: stop.clone(), alone: group.size() == 1 })?;
    Ok(stop)
}

/// Makes signals end the process with the message `saved` from now on: training is over, and its results are on disk.
///
/// # Errors
/// Fails if a signal cannot be handled.
pub fn end(saved: String, leads: bool) -> Result<()> {
    match leads {
        true => end_at_once(&saved, || {}),
        false => respond(Response::Leave),
    }
}

fn respond(next: Response) -> Result<()> {
    *NEXT.lock().unwrap_or_else(PoisonError::into_inner) = next;
    let mut started = Ok(());
    STARTED.call_once(|| started = listen());
    started
}

/// The signals that end a command.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGUSR1, SIGHUP];

/// Returns the signals that end this command: without SIGHUP where that is ignored, as `nohup` wants it.
fn ending() -> Result<Vec<i32>> {
    let mut signals = ENDING.to_vec();
    if action(SIGHUP)?.sa_sigaction == libc::SIG_IGN {
        signals.retain(|signal| *signal != SIGHUP);
    }
    Ok(signals)
}

/// Returns what this process does with a signal.
fn action(signal: i32) -> std::io::Result<libc::sigaction> {
    // SAFETY: a null pointer changes nothing, and the call writes all of the action.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        done(libc::sigaction(signal, ptr::null(), &mut action))?;
        Ok(action)
    }
}

fn done(code: i32) -> std::io::Result<()> {
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The bytes of the stack of handlers. With the largest registers (AMX), a frame of a handler takes 12 KB.
const STACK: usize = 64 << 10;

fn listen() -> Result<()> {
    let ending = ending()?;
    let mut signals = Signals::new(&ending)?;
    handle_apart(&ending)?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if let Some(code) = answer(signal) {
                end_groups();
                // `process::exit` would destroy libtorch's state while it still computes.
                signal_hook::low_level::exit(code.into());
            }
        }
    });
    Ok(())
}

/// Has the handlers of these signals run on a stack of their own in this thread, which is the first one: it gets the signals of the process.
///
/// oneDNN's products of f32 matrices with AVX-512 move the stack pointer to a buffer on the heap. The registers that the system puts below
/// it where a signal arrives meanwhile overwrote what lies in front of the buffer, and the process crashed.
fn handle_apart(signals: &[i32]) -> std::io::Result<()> {
    let memory = Box::leak(vec![0u8; STACK].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: the memory is never freed, and nothing else uses it.
    done(unsafe { libc::sigaltstack(&stack, ptr::null_mut()) })?;
    for signal in signals {
        let mut action = action(*signal)?;
        action.sa_flags |= libc::SA_ONSTACK;
        // SAFETY: the handler stays the one that the action names.
        done(unsafe { libc::sigaction(*signal, &action, ptr::null_mut()) })?;
    }
    Ok(())
}

/// Answers a signal. Returns the exit code if the process ends.
fn answer(signal: i32) -> Option<u8> {
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    match mem::replace(&mut *next, Response::Leave) {
        Response::End { saved, last } => {
            last();
            Some(fail(&Stopped(saved).into()))
        }
        Response::Leave => Some(1),
        Response::Ask { stop, alone } => {
            // With several processes, the batch system and the launcher may both forward the same signal. Where a terminal goes, the
            // system and the shell both say so.
            let again = stop.swap(true, Ordering::Relaxed);
            if alone && [SIGINT, SIGTERM].contains(&signal) && again {
                return Some(fail(&Stopped("stopped at once; what was saved before stays".into()).into()));
            }
            if !again {
                tracing::info!("stopping after this step{}", if alone { "; again to stop now" } else { "" });
            }
            *next = Response::Ask { stop, alone };
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A frame of a handler on the computing thread's own stack may lie in the heap, where oneDNN has moved the stack pointer.
    #[test]
    fn signals_are_handled_on_a_stack_of_their_own() {
        listen().unwrap();
        for signal in ending().unwrap() {
            let action = action(signal).unwrap();
            // SAFETY: the call writes all of its result.
            let stack = unsafe {
                let mut stack: libc::stack_t = mem::zeroed();
                assert_eq!(libc::sigaltstack(ptr::null(), &mut stack), 0);
                stack
            };
            assert!(action.sa_flags & libc::SA_ONSTACK != 0 && action.sa_sigaction != libc::SIG_DFL, "signal {signal}");
            assert!(stack.ss_flags & libc::SS_DISABLE == 0 && stack.ss_size >= STACK, "signal {signal}");
        }
    }

    #[test]
    fn a_message_is_one_line_without_a_trace() {
        assert_eq!(one_line("a\nb.png: cannot read"), "a\\nb.png: cannot read");
        assert_eq!(one_line("Expected a tensor\nException raised from x at y\nframe #0"), "Expected a tensor");
    }
}
