//! The cut of a task while it runs. It gets smaller when memory runs out, and a resumed run uses the cut that it
//! started with.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

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

/// The part of a task that goes through the network at once. Results depend on it only through rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSize {
    /// The number of particles, draws or other members of a posterior.
    pub members: usize,
    pub images: usize,
}

impl ChunkSize {
    /// Returns a cut with half as many images, or, if there is only one image, half as many members.
    pub(super) fn halved(self) -> Option<ChunkSize> {
        match self {
            ChunkSize { members: 0..=1, images: 0..=1 } => None,
            ChunkSize { members, images: 0..=1 } => Some(ChunkSize { members: members.div_ceil(2), images: 1 }),
            ChunkSize { members, images } => Some(ChunkSize { members, images: images.div_ceil(2) }),
        }
    }
}

/// The memory that a task takes while it runs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Bytes that are needed for any cut.
    pub fixed: u64,
    /// Bytes for each member at once: its layer weights and their gradients.
    pub member: u64,
    /// Bytes for each image at once, for any number of members.
    pub image: u64,
    /// Bytes for each image of each member at once: activations.
    pub pair: u64,
}

impl MemoryEstimate {
    /// Returns the memory of a cut, in bytes.
    pub fn bytes(&self, ChunkSize { members, images }: ChunkSize) -> u64 {
        let (members, images) = (members as u64, images as u64);
        let parts = [self.member.saturating_mul(members), self.image.saturating_mul(images)];
        let pairs = self.pair.saturating_mul(members.saturating_mul(images));
        parts.into_iter().fold(self.fixed.saturating_add(pairs), u64::saturating_add)
    }

    /// Returns the largest cut of `whole` into about equal parts that takes at most `room` bytes. It reduces the
    /// members first, then the images. The smallest cut is one member and one image, whether they fit or not.
    pub(super) fn cut(&self, whole: ChunkSize, room: u64) -> ChunkSize {
        let each = self.member.saturating_add(self.pair.saturating_mul(whole.images as u64));
        let rest = room.saturating_sub(self.fixed.saturating_add(self.image.saturating_mul(whole.images as u64)));
        let most = rest / each.max(1);
        if most >= 1 {
            return ChunkSize { members: even(whole.members, most), images: whole.images };
        }
        let rest = room.saturating_sub(self.fixed.saturating_add(self.member));
        let most = rest / self.image.saturating_add(self.pair).max(1);
        ChunkSize { members: 1, images: even(whole.images, most.max(1)) }
    }
}

/// Returns the largest size of about equal parts of `all` that is at most `most`.
fn even(all: usize, most: u64) -> usize {
    let most = most.clamp(1, all.max(1) as u64) as usize;
    all.div_ceil(all.div_ceil(most).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

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

    const NEED: MemoryEstimate = MemoryEstimate { fixed: 100, member: 10, image: 1, pair: 2 };

    #[test]
    fn members_are_cut_before_images() {
        // 100 + 8·10 + 20 + 8·20·2 = 520.
        assert_eq!(NEED.bytes(WHOLE), 520);
        assert_eq!(NEED.cut(WHOLE, 520), WHOLE);
        assert_eq!(NEED.cut(WHOLE, 519), ChunkSize { members: 4, images: 20 });
        assert_eq!(NEED.cut(WHOLE, 170), ChunkSize { members: 1, images: 20 });
        assert_eq!(NEED.cut(WHOLE, 169), ChunkSize { members: 1, images: 10 });
        assert_eq!(NEED.cut(WHOLE, 0), ChunkSize { members: 1, images: 1 });
        for room in [120, 150, 300, 519] {
            assert!(NEED.bytes(NEED.cut(WHOLE, room)) <= room, "{room}");
        }
    }
}
