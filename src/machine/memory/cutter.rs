//! A cut while its task runs: it gets smaller when memory runs out, and a run that goes on takes up the one it had.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use super::need::{Cut, Need};
use super::{gib, release_freed};
use crate::base::tensor::{guarded, is_out_of_memory};

/// Share of the free memory that the cut of a run that goes on may take. More than a new plan may use: another cut rounds
/// otherwise, so that the run would not go on bit for bit.
const SHARE_TO_GO_ON: f64 = 0.9;

/// The largest amount that this process has planned to hold so far, in bytes.
static PLANNED: AtomicU64 = AtomicU64::new(0);

/// Remembers that this process plans to hold so many bytes in all.
pub(super) fn note(bytes: u64) {
    PLANNED.fetch_max(bytes, Ordering::Relaxed);
}

/// The largest amount of memory that this process has planned to hold so far, in bytes.
pub fn planned_bytes() -> u64 {
    PLANNED.load(Ordering::Relaxed)
}

/// What a cut was planned with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planned {
    pub need: Need,
    /// What was free, in bytes, where the system tells.
    pub free: Option<u64>,
    /// What this process held, in bytes.
    pub held: u64,
}

/// The cut of a task that runs; it gets smaller when memory runs out.
#[derive(Debug)]
pub struct Cutter {
    cut: Cell<Cut>,
    planned: Planned,
    what: String,
    advice: String,
}

impl Cutter {
    /// A cut that was not planned: everything at once.
    pub fn fixed(cut: Cut, what: &str, advice: &str) -> Cutter {
        Cutter::planned(cut, Planned::default(), what, advice)
    }

    pub(super) fn planned(cut: Cut, planned: Planned, what: &str, advice: &str) -> Cutter {
        Cutter { cut: Cell::new(cut), planned, what: what.to_string(), advice: advice.to_string() }
    }

    pub fn cut(&self) -> Cut {
        self.cut.get()
    }

    pub fn set(&self, cut: Cut) {
        self.cut.set(cut);
    }

    /// Takes up the cut that a run was started with, unless that does not fit in what is free now: then the present one
    /// stays, and a line says so.
    pub fn go_on_with(&self, started: Cut) {
        let (now, Planned { need, free, held }) = (self.cut.get(), self.planned);
        if started == now {
            return;
        }
        let (bytes, Cut { members, images }) = (need.bytes(started), started);
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

    /// Makes the cut no larger than there are members.
    pub fn clamp(&self, members: usize) {
        let cut = self.cut.get();
        self.cut.set(Cut { members: cut.members.min(members), ..cut });
    }

    /// Runs `work` with the present cut; where memory runs out, halves the cut, says so and tries again. `work` must do the
    /// same each time.
    ///
    /// # Errors
    /// Those of `work`; no memory for one member and one image.
    pub fn run<T>(&self, work: impl Fn(Cut) -> Result<T>) -> Result<T> {
        loop {
            let cut = self.cut.get();
            let error = match guarded(&self.what, &self.advice, || work(cut)) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let Some(less) = cut.halved().filter(|_| is_out_of_memory(&error)) else { return Err(error) };
            // Others in this process may have made it smaller meanwhile.
            if self.cut.get() == cut {
                let Cut { members, images } = less;
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

    const WHOLE: Cut = Cut { members: 8, images: 20 };

    #[test]
    fn when_memory_runs_out_the_cut_is_halved() {
        let cutter = Cutter::fixed(WHOLE, "test", "wait");
        let work = |most: usize| {
            cutter.run(move |cut| match cut.members * cut.images > most {
                true => Err(crate::base::tensor::OutOfMemory("no memory".into()).into()),
                false => Ok(cut),
            })
        };
        assert_eq!(work(45).unwrap(), Cut { members: 8, images: 5 });
        assert_eq!(work(3).unwrap(), Cut { members: 2, images: 1 });
        assert!(is_out_of_memory(&work(0).unwrap_err()));
        assert_eq!(cutter.run(|_| Err::<(), _>(anyhow!("other"))).unwrap_err().to_string(), "other");
        assert_eq!(cutter.cut(), Cut { members: 1, images: 1 });
    }

    #[test]
    fn a_run_goes_on_with_its_cut_where_that_fits() {
        let need = Need { fixed: 100, member: 0, image: 0, pair: 10 };
        let after = |started: Cut, free: Option<u64>| {
            let planned = Planned { need, free, held: 0 };
            let cutter = Cutter::planned(Cut { members: 2, images: 20 }, planned, "test", "wait");
            cutter.go_on_with(started);
            cutter.cut()
        };
        // 100 + 8·20·10 = 1700.
        assert_eq!(after(WHOLE, Some(1900)), WHOLE);
        assert_eq!(after(WHOLE, Some(1800)), Cut { members: 2, images: 20 });
        assert_eq!(after(WHOLE, None), WHOLE);
        let smaller = Cut { members: 1, images: 20 };
        assert_eq!(after(smaller, Some(10)), smaller, "less than what was planned now");
    }
}
