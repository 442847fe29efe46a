//! Plans: how a task is cut so that it fits in the memory that is free.

use anyhow::{Result, bail};
use tch::Device;

use super::cutter::{Cutter, Planned, note};
use super::need::{Cut, Need};
use super::{free_bytes, gib, held_bytes};

/// Share of the free memory that a plan may use. The rest is for what an estimate misses.
const SHARE: f64 = 0.75;

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
        let planned = Planned { need: self.need, free, held: held_bytes().unwrap_or(0) };
        note(planned.held + bytes);
        Ok(Cutter::planned(cut, planned, self.what, self.advice))
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

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: Need = Need { fixed: 100, member: 10, image: 1, pair: 2 };
    const WHOLE: Cut = Cut { members: 8, images: 20 };

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
}
