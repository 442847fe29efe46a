//! The handling of Ctrl-C, SIGTERM and SIGUSR1 (which batch systems send before the time limit) while `bella train`
//! runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::failure::{Stopped, fail};
use crate::machine::parallel::World;

/// Returns a flag that the signals set. In a single process, a second Ctrl-C or SIGTERM ends the process at once.
///
/// # Errors
/// Fails if a signal cannot be handled.
pub fn stop(world: &World) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        // With several processes, the batch system and the launcher may both forward the same signal.
        if signal != SIGUSR1 && world.size() == 1 {
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        }
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Makes the signals end the process with the message `saved` from now on: training is over, and its results are on
/// disk.
///
/// # Errors
/// Fails if a signal cannot be handled.
pub fn end(saved: String, leads: bool) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let code = if leads { fail(&Stopped(saved).into()) } else { 1 };
            // `process::exit` would destroy libtorch's state while it still computes.
            signal_hook::low_level::exit(code.into());
        }
    });
    Ok(())
}
