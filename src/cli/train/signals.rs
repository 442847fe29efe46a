//! What Ctrl-C, SIGTERM and SIGUSR1 (of batch systems, before the time is up) do while `bella train` works.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::failure::{Stopped, fail};
use crate::machine::parallel::World;

/// A flag that the signals set; a second Ctrl-C or SIGTERM ends the process at once.
///
/// # Errors
/// A signal that cannot be handled.
pub fn stop(world: &World) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        // A batch system and the launcher may both pass on one and the same signal.
        if signal != SIGUSR1 && world.size() == 1 {
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        }
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// From now on the signals end the process with what `saved` says: training is over, and what it has learned is on disk.
///
/// # Errors
/// A signal that cannot be handled.
pub fn end(saved: String, leads: bool) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let code = if leads { fail(&Stopped(saved).into()) } else { 1 };
            // Not `process::exit`: libtorch is at work, and must not be taken down under it.
            signal_hook::low_level::exit(code.into());
        }
    });
    Ok(())
}
