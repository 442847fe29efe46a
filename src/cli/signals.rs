//! The handling of Ctrl-C, SIGTERM and SIGUSR1 (which batch systems send before the time limit), alike in every command: a
//! line says what is saved, and the exit code is 1.
//!
//! One thread waits for signals. What it does with one changes while a command runs: it ends the process at once, or asks
//! a training loop to save and end.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::failure::{Stopped, fail};
use crate::machine::parallel::ProcessGroup;

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

fn listen() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if let Some(code) = answer(signal) {
                // `process::exit` would destroy libtorch's state while it still computes.
                signal_hook::low_level::exit(code.into());
            }
        }
    });
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
            // With several processes, the batch system and the launcher may both forward the same signal.
            let again = stop.swap(true, Ordering::Relaxed);
            if alone && signal != SIGUSR1 && again {
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
