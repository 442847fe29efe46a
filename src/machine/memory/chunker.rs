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
    pub at_most: Option<AtMost>,
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
        let (now, Planned { need, at_most, free, held }) = (self.cut.get(), self.planned);
        if started == now {
            return;
        }
        let (bytes, ChunkSize { members, images }) = (need.bytes(started, at_most), started);
        let larger = need.bytes(now, at_most) < bytes;
        match free.filter(|free| bytes as f64 > *free as f64 * SHARE_TO_GO_ON && larger) {
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

/// The numbers of members, and of images of members, in memory at the same time where a pass is divided into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMost {
    pub members: usize,
    /// Images of members.
    pub pairs: usize,
}

impl MemoryEstimate {
    /// Returns the memory of a cut, in bytes, of which no more is there at the same time than `at_most` says.
    pub fn bytes(&self, ChunkSize { members, images }: ChunkSize, at_most: Option<AtMost>) -> u64 {
        let (members, images) = (members as u64, images as u64);
        let pairs = members.saturating_mul(images);
        let (members, pairs) =
            at_most.map_or((members, pairs), |most| (members.min(most.members as u64), pairs.min(most.pairs as u64)));
        let parts =
            [self.member.saturating_mul(members), self.image.saturating_mul(images), self.pair.saturating_mul(pairs)];
        parts.into_iter().fold(self.fixed, u64::saturating_add)
    }
}

impl ChunkSize {
    /// Returns the largest cut of this one into about equal parts that fits. Members are reduced first, unless they are `fixed`, then
    /// images. The smallest cut is returned whether it fits or not.
    pub(super) fn fitting(self, fixed: bool, fits: impl Fn(ChunkSize) -> bool) -> ChunkSize {
        let members = |count: usize| ChunkSize { members: count, ..self };
        let fewest = if fixed { self.members } else { 1 };
        let of_members = even(self.members, fewest).map(members);
        let of_images = even(self.images, 1).map(|images| ChunkSize { members: fewest, images });
        let smallest = ChunkSize { members: fewest, images: 1 };
        of_members.chain(of_images).find(|cut| fits(*cut)).unwrap_or(smallest)
    }
}

/// Returns the sizes of about equal parts of `all`, falling from `all` to `least`.
fn even(all: usize, least: usize) -> impl Iterator<Item = usize> {
    (1..=all.max(1)).map(move |parts| all.max(1).div_ceil(parts)).take_while(move |size| *size >= least)
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
            let planned = Planned { need, at_most: None, free, held: 0 };
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

    fn cut(room: u64, at_most: Option<AtMost>) -> ChunkSize {
        WHOLE.fitting(false, |cut| NEED.bytes(cut, at_most) <= room)
    }

    #[test]
    fn pieces_that_are_there_one_after_the_other_take_no_more_than_those_of_a_moment() {
        // Two pieces of one member and ten images: 100 + 2·10 + 20 + 20·2.
        let at_most = Some(AtMost { members: 2, pairs: 20 });
        assert_eq!(NEED.bytes(WHOLE, at_most), 180);
        assert_eq!(cut(180, at_most), WHOLE);
        // 100 + 10 + 20 + 20·2 for one member.
        assert_eq!(cut(179, at_most), ChunkSize { members: 1, images: 20 });
        assert_eq!(cut(169, at_most), ChunkSize { members: 1, images: 10 });
    }

    #[test]
    fn members_are_cut_before_images() {
        // 100 + 8·10 + 20 + 8·20·2 = 520.
        assert_eq!(NEED.bytes(WHOLE, None), 520);
        assert_eq!(cut(520, None), WHOLE);
        assert_eq!(cut(519, None), ChunkSize { members: 4, images: 20 });
        assert_eq!(cut(170, None), ChunkSize { members: 1, images: 20 });
        assert_eq!(cut(169, None), ChunkSize { members: 1, images: 10 });
        assert_eq!(cut(0, None), ChunkSize { members: 1, images: 1 });
        for room in [120, 150, 300, 519] {
            assert!(NEED.bytes(cut(room, None), None) <= room, "{room}");
        }
    }
}
