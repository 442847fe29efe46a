//! The cut of a task while it runs. It gets smaller when memory runs out, and a resumed run uses the cut that it
//! started with.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use super::estimate::{ChunkSize, MemoryEstimate};
use super::{gib, release_freed};
use crate::base::tensor::{guarded, is_out_of_memory};

/// The share of the free memory that the cut of a resumed run may use. It is larger than that of a new plan, because
/// another cut would round differently and the run would no longer be bit-identical.
const SHARE_TO_GO_ON: f64 = 0.9;

/// The largest amount of memory that this process has planned to hold so far, in bytes.
static PLANNED: AtomicU64 = AtomicU64::new(0);

/// Records that this process plans to hold `bytes` bytes in total.
pub(super) fn note(bytes: u64) {
    PLANNED.fetch_max(bytes, Ordering::Relaxed);
}

/// Returns the largest amount of memory that this process has planned to hold so far, in bytes.
pub fn planned_bytes() -> u64 {
    PLANNED.load(Ordering::Relaxed)
}

/// The amounts of memory from which a cut was planned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planned {
    pub need: MemoryEstimate,
    /// The bytes that were free, if the system reports them.
    pub free: Option<u64>,
    /// The bytes that this process held.
    pub held: u64,
}

/// The cut of a running task, which gets smaller when memory runs out.
#[derive(Debug)]
pub struct Chunker {
    cut: Cell<ChunkSize>,
    planned: Planned,
    what: String,
    advice: String,
}

impl Chunker {
    /// Creates a chunker with a given cut, without a plan.
    pub fn fixed(cut: ChunkSize, what: &str, advice: &str) -> Chunker {
        Chunker::planned(cut, Planned::default(), what, advice)
    }

    pub(super) fn planned(cut: ChunkSize, planned: Planned, what: &str, advice: &str) -> Chunker {
        Chunker { cut: Cell::new(cut), planned, what: what.to_string(), advice: advice.to_string() }
    }

    pub fn cut(&self) -> ChunkSize {
        self.cut.get()
    }

    pub fn set(&self, cut: ChunkSize) {
        self.cut.set(cut);
    }

    /// Uses the cut that a run was started with, unless it does not fit in the free memory. In that case the present
    /// cut stays, and a line in the log says so.
    pub fn go_on_with(&self, started: ChunkSize) {
        let (now, Planned { need, free, held }) = (self.cut.get(), self.planned);
        if started == now {
            return;
        }
        let (bytes, ChunkSize { members, images }) = (need.bytes(started), started);
        match free.filter(|free| bytes as f64 > *free as f64 * SHARE_TO_GO_ON && need.bytes(now) < bytes) {
            Some(free) => tracing::warn!(
                "{}: this run was started with {members} members x {images} images at once, which need {:.1} GiB, but \
                 {:.1} GiB is free: it goes on with {} x {}, but not bit for bit",
                self.what,
                gib(bytes),
                gib(free),
                now.members,
                now.images
            ),
            None => {
                tracing::info!("{}: {members} members x {images} images at once, as the run was started", self.what);
                note(held + bytes);
                self.cut.set(started);
            }
        }
    }

    /// Limits the cut to the number of members.
    pub fn clamp(&self, members: usize) {
        let cut = self.cut.get();
        self.cut.set(ChunkSize { members: cut.members.min(members), ..cut });
    }

    /// Runs `work` with the present cut. If memory runs out, it halves the cut, logs this and tries again. `work` must
    /// do the same each time.
    ///
    /// # Errors
    /// Fails if `work` fails, or if there is no memory for one member and one image.
    pub fn run<T>(&self, work: impl Fn(ChunkSize) -> Result<T>) -> Result<T> {
        loop {
            let cut = self.cut.get();
            let error = match guarded(&self.what, &self.advice, || work(cut)) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let Some(less) = cut.halved().filter(|_| is_out_of_memory(&error)) else { return Err(error) };
            // Others in this process may have made it smaller meanwhile.
            if self.cut.get() == cut {
                let ChunkSize { members, images } = less;
                tracing::warn!(
                    "{}: memory ran out: {members} members x {images} images at once from here on",
                    self.what
                );
                self.cut.set(less);
            }
            release_freed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    const WHOLE: ChunkSize = ChunkSize { members: 8, images: 20 };

    #[test]
    fn when_memory_runs_out_the_cut_is_halved() {
        let chunker = Chunker::fixed(WHOLE, "test", "wait");
        let work = |most: usize| {
            chunker.run(move |cut| match cut.members * cut.images > most {
                true => Err(crate::base::tensor::OutOfMemory("no memory".into()).into()),
                false => Ok(cut),
            })
        };
        assert_eq!(work(45).unwrap(), ChunkSize { members: 8, images: 5 });
        assert_eq!(work(3).unwrap(), ChunkSize { members: 2, images: 1 });
        assert!(is_out_of_memory(&work(0).unwrap_err()));
        assert_eq!(chunker.run(|_| Err::<(), _>(anyhow!("other"))).unwrap_err().to_string(), "other");
        assert_eq!(chunker.cut(), ChunkSize { members: 1, images: 1 });
    }

    #[test]
    fn a_run_goes_on_with_its_cut_where_that_fits() {
        let need = MemoryEstimate { fixed: 100, member: 0, image: 0, pair: 10 };
        let after = |started: ChunkSize, free: Option<u64>| {
            let planned = Planned { need, free, held: 0 };
            let chunker = Chunker::planned(ChunkSize { members: 2, images: 20 }, planned, "test", "wait");
            chunker.go_on_with(started);
            chunker.cut()
        };
        // 100 + 8·20·10 = 1700.
        assert_eq!(after(WHOLE, Some(1900)), WHOLE);
        assert_eq!(after(WHOLE, Some(1800)), ChunkSize { members: 2, images: 20 });
        assert_eq!(after(WHOLE, None), WHOLE);
        let smaller = ChunkSize { members: 1, images: 20 };
        assert_eq!(after(smaller, Some(10)), smaller, "less than what was planned now");
    }
}
