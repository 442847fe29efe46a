//! Plans: what a task needs, how it is cut so that it fits, and what happens when memory runs out all the same.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use tch::Device;

use super::{free_bytes, gib, held_bytes, release_freed};
use crate::base::tensor::{guarded, is_out_of_memory};

/// Share of the free memory that a plan may use. The rest is for what an estimate misses.
const SHARE: f64 = 0.75;

/// The largest amount that this process has planned to hold so far, in bytes.
static PLANNED: AtomicU64 = AtomicU64::new(0);

/// How much goes through the network at once. Results do not depend on it beyond rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Particles, draws or other members of a posterior.
    pub members: usize,
    pub images: usize,
}

impl Cut {
    /// Half as many images, or where there is one image left, half as many members.
    fn halved(self) -> Option<Cut> {
        match self {
            Cut { members: 0..=1, images: 0..=1 } => None,
            Cut { members, images: 0..=1 } => Some(Cut { members: members.div_ceil(2), images: 1 }),
            Cut { members, images } => Some(Cut { members, images: images.div_ceil(2) }),
        }
    }
}

/// The memory that a task takes while it runs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// However it is cut.
    pub fixed: u64,
    /// For each member at once: its layer weights and their gradients.
    pub member: u64,
    /// For each image at once, whatever the number of members.
    pub image: u64,
    /// For each image of each member at once: activations.
    pub pair: u64,
}

impl Need {
    /// The memory of a cut, in bytes.
    pub fn bytes(&self, Cut { members, images }: Cut) -> u64 {
        let (members, images) = (members as u64, images as u64);
        let parts = [self.member.saturating_mul(members), self.image.saturating_mul(images)];
        let pairs = self.pair.saturating_mul(members.saturating_mul(images));
        parts.into_iter().fold(self.fixed.saturating_add(pairs), u64::saturating_add)
    }

    /// The largest cut of `whole` into about equal parts that takes at most `room` bytes: fewer members first, then fewer
    /// images. One member and one image are the least, whether they fit or not.
    fn cut(&self, whole: Cut, room: u64) -> Cut {
        let each = self.member.saturating_add(self.pair.saturating_mul(whole.images as u64));
        let rest = room.saturating_sub(self.fixed.saturating_add(self.image.saturating_mul(whole.images as u64)));
        let most = rest / each.max(1);
        if most >= 1 {
            return Cut { members: even(whole.members, most), images: whole.images };
        }
        let rest = room.saturating_sub(self.fixed.saturating_add(self.member));
        let most = rest / self.image.saturating_add(self.pair).max(1);
        Cut { members: 1, images: even(whole.images, most.max(1)) }
    }
}

/// Bytes in GiB with as many digits as tell something.
fn shown(bytes: u64) -> String {
    let gib = gib(bytes);
    if gib < 0.1 { format!("{gib:.4}") } else { format!("{gib:.1}") }
}

/// The part of `free` bytes that a plan may use.
fn share_of(free: u64) -> u64 {
    (free as f64 * SHARE) as u64
}

/// The memory that a plan may use on a device now, in bytes, where the system tells what is free.
pub fn room(device: Device) -> Option<u64> {
    free_bytes(device).map(share_of)
}

/// The size of about equal parts of `all`, each of at most `most`.
fn even(all: usize, most: u64) -> usize {
    let most = most.clamp(1, all.max(1) as u64) as usize;
    all.div_ceil(all.div_ceil(most).max(1)).max(1)
}

/// Something that takes memory, before it starts.
pub struct Task<'a> {
    /// A noun for messages: "prediction", "attack".
    pub what: &'a str,
    pub need: Need,
    /// All members, and the images of a batch.
    pub whole: Cut,
    /// The members at once that the user asks for; 0 for all.
    pub members: Option<usize>,
    pub device: Device,
    /// What makes it need less, for messages.
    pub advice: &'a str,
}

impl Task<'_> {
    /// Cuts the task to the memory that is free now.
    ///
    /// # Errors
    /// One member and one image do not fit: with the amount, and what would help.
    pub fn plan(&self) -> Result<Cutter> {
        let free = free_bytes(self.device);
        let cut = self.cut(free.map_or(u64::MAX, share_of));
        let bytes = self.need.bytes(cut);
        if let Some(free) = free.filter(|free| bytes > *free && cut.images == 1) {
            bail!(
                "{}: {} member{} and one image at once need {} GiB, but {} GiB is free: {}, or use a machine with \
                 more memory",
                self.what,
                cut.members,
                if cut.members == 1 { "" } else { "s" },
                shown(bytes),
                shown(free),
                self.advice
            );
        }
        self.tell(cut, bytes, free);
        Ok(Cutter { cut: Cell::new(cut), what: self.what.to_string(), advice: self.advice.to_string() })
    }

    /// The cut for `room` bytes, with the members that the user asks for.
    fn cut(&self, room: u64) -> Cut {
        let Some(members) = self.members else { return self.need.cut(self.whole, room) };
        let members = if members == 0 { self.whole.members } else { members.min(self.whole.members) };
        // As one member that takes what all of them take.
        let joined = Need {
            fixed: self.need.fixed,
            member: self.need.member.saturating_mul(members as u64),
            image: self.need.image,
            pair: self.need.pair.saturating_mul(members as u64),
        };
        Cut { members, ..joined.cut(Cut { members: 1, images: self.whole.images }, room) }
    }

    fn tell(&self, cut: Cut, bytes: u64, free: Option<u64>) {
        PLANNED.fetch_max(bytes + held_bytes().unwrap_or(0), Ordering::Relaxed);
        let Some(free) = free else { return };
        let (what, Cut { members, images }) = (self.what, cut);
        let amounts = format!("about {:.2} GiB of {:.2} GiB free", gib(bytes), gib(free));
        match cut == self.whole || self.members.is_some() && images == self.whole.images {
            true => tracing::debug!("{what}: {members} members x {images} images at once, {amounts}"),
            false => tracing::info!(
                "{what}: {members} of {} members x {images} of {} images at once, so that it fits: {amounts}",
                self.whole.members,
                self.whole.images
            ),
        }
    }
}

/// The largest amount of memory that this process has planned to hold so far, in bytes.
pub fn planned_bytes() -> u64 {
    PLANNED.load(Ordering::Relaxed)
}

/// The cut of a task that runs; it gets smaller when memory runs out.
#[derive(Debug)]
pub struct Cutter {
    cut: Cell<Cut>,
    what: String,
    advice: String,
}

impl Cutter {
    /// A cut that was not planned: everything at once, or what a resumed run started with.
    pub fn fixed(cut: Cut, what: &str, advice: &str) -> Cutter {
        Cutter { cut: Cell::new(cut), what: what.to_string(), advice: advice.to_string() }
    }

    pub fn cut(&self) -> Cut {
        self.cut.get()
    }

    pub fn set(&self, cut: Cut) {
        self.cut.set(cut);
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

    const NEED: Need = Need { fixed: 100, member: 10, image: 1, pair: 2 };
    const WHOLE: Cut = Cut { members: 8, images: 20 };

    #[test]
    fn members_are_cut_before_images() {
        // 100 + 8·10 + 20 + 8·20·2 = 520.
        assert_eq!(NEED.bytes(WHOLE), 520);
        assert_eq!(NEED.cut(WHOLE, 520), WHOLE);
        assert_eq!(NEED.cut(WHOLE, 519), Cut { members: 4, images: 20 });
        assert_eq!(NEED.cut(WHOLE, 170), Cut { members: 1, images: 20 });
        assert_eq!(NEED.cut(WHOLE, 169), Cut { members: 1, images: 10 });
        assert_eq!(NEED.cut(WHOLE, 0), Cut { members: 1, images: 1 });
        for room in [120, 150, 300, 519] {
            assert!(NEED.bytes(NEED.cut(WHOLE, room)) <= room, "{room}");
        }
    }

    fn task(members: Option<usize>) -> Task<'static> {
        Task { what: "test", need: NEED, whole: WHOLE, members, device: Device::Cpu, advice: "wait" }
    }

    #[test]
    fn asked_members_stay_and_images_give_way() {
        assert_eq!(task(Some(0)).cut(u64::MAX), WHOLE);
        assert_eq!(task(Some(3)).cut(u64::MAX), Cut { members: 3, images: 20 });
        // 100 + 8·10 = 180, and 17 an image.
        assert_eq!(task(Some(0)).cut(180 + 10 * 17), Cut { members: 8, images: 10 });
    }

    #[test]
    fn too_little_memory_is_refused_with_the_amount() {
        let need = Need { member: 1 << 60, ..NEED };
        let error = Task { need, ..task(None) }.plan().unwrap_err().to_string();
        assert!(error.contains("test: 1 member and one image at once need 1073741824.0 GiB, but"), "{error}");
        assert!(error.ends_with("is free: wait, or use a machine with more memory"), "{error}");
    }

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
}
