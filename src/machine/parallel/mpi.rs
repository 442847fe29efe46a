//! Processes that MPI connects (Open MPI through the `mpi` crate).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use mpi::Count;
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives, Root};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::network::Network;

/// The ranks of a communicator.
pub struct Ranks {
    communicator: SimpleCommunicator,
    calls: Arc<Calls>,
    /// The handle of MPI, only held by the ranks of the whole world. MPI ends when it is dropped, after its
    /// communicator.
    _universe: Option<Universe>,
}

impl Ranks {
    /// Starts MPI and returns all ranks.
    ///
    /// # Errors
    /// Fails if MPI does not start.
    pub fn open() -> Result<Ranks> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)
            .context("MPI does not start: is this the mpirun of the library that bella was built with?")?;
        let calls = Arc::new(Calls::default());
        let communicator = universe.world();
        if communicator.rank() == 0 {
            explain_the_end(calls.clone())?;
        }
        Ok(Ranks { communicator, calls, _universe: Some(universe) })
    }
}

/// A counter of the starts and ends of messages. It is odd while this process waits for others.
#[derive(Default)]
struct Calls(AtomicU64);

impl Calls {
    fn during<T>(&self, message: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let value = message();
        self.0.fetch_add(1, Ordering::Relaxed);
        value
    }
}

/// Starts a thread that explains why this process ends. When a process dies, the launcher asks the others to end and
/// kills them soon after. A process that waits for a message cannot print anything then, so a thread does it.
fn explain_the_end(calls: Arc<Calls>) -> Result<()> {
    /// A wait that is shorter than the time between a launcher's request to end and its kill.
    const PATIENCE: Duration = Duration::from_millis(400);
    let mut signals = Signals::new([SIGTERM]).context("cannot listen to signals")?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let before = calls.0.load(Ordering::Relaxed);
            std::thread::sleep(PATIENCE);
            if before % 2 == 1 && calls.0.load(Ordering::Relaxed) == before {
                tracing::error!(
                    "asked to end while another process did not answer (it died, or is in a long step): the last \
                     resume file is intact, and the same command continues"
                );
            }
        }
    });
    Ok(())
}

impl Network for Ranks {
    fn rank(&self) -> usize {
        self.communicator.rank() as usize
    }

    fn size(&self) -> usize {
        self.communicator.size() as usize
    }

    fn numbers(&self, own: u64) -> Vec<u64> {
        let mut all = vec![0; self.size()];
        self.calls.during(|| self.communicator.all_gather_into(&own, &mut all[..]));
        all
    }

    fn gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) {
        let counts: Vec<Count> = counts.iter().map(|count| *count as Count).collect();
        let starts = counts.iter().scan(0, |next, count| {
            *next += count;
            Some(*next - count)
        });
        let starts: Vec<Count> = starts.collect();
        let mut all = PartitionMut::new(all, counts, starts);
        self.calls.during(|| self.communicator.all_gather_varcount_into(own, &mut all));
    }

    fn sum(&self, values: &mut [f32]) {
        let own = values.to_vec();
        self.calls.during(|| self.communicator.all_reduce_into(&own[..], values, SystemOperation::sum()));
    }

    fn broadcast(&self, bytes: &mut [u8]) {
        self.calls.during(|| self.communicator.process_at_rank(0).broadcast_into(bytes));
    }

    fn split(&self, color: usize) -> Box<dyn Network> {
        let communicator = self.communicator.split_by_color(Color::with_value(color as Count));
        // Only a rank without a color gets no communicator.
        let communicator = communicator.expect("a communicator for every color");
        Box::new(Ranks { communicator, calls: self.calls.clone(), _universe: None })
    }

    fn wait(&self) {
        // MPI's own barrier would keep a core busy while the first process is still working.
        let mut request = self.communicator.immediate_barrier();
        while let Err(unfinished) = request.test() {
            request = unfinished;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn abort(&self, code: u8) -> ! {
        self.communicator.abort(code.into())
    }
}
