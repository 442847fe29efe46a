//! Plans, which cut a task so that it fits in the free memory.

use anyhow::{Result, anyhow};
use tch::Device;

use super::chunker::{AtMost, ChunkSize, Chunker, MemoryEstimate, Planned, note};
use super::{free_bytes, gib, held_bytes};

/// The share of the free memory that a plan may use. The rest covers the error of the estimate.
const SHARE: f64 = 0.75;

/// Formats bytes as GiB, with more digits for small amounts.
fn shown(bytes: u64) -> String {
    let gib = gib(bytes);
    if gib < 0.1 { format!("{gib:.4}") } else { format!("{gib:.1}") }
}

/// Returns the part of `free` bytes that a plan may use.
fn share_of(free: u64) -> u64 {
    (free as f64 * SHARE) as u64
}

/// Returns the memory that a plan may use on a device now, in bytes, if the system reports what is free.
pub fn room(device: Device) -> Option<u64> {
    free_bytes(device).map(share_of)
}

/// A task that needs memory, described before it starts.
pub struct Task<'a> {
    /// A noun for messages, such as "prediction" or "attack".
    pub what: &'a str,
    /// The bytes of data that are created before the task starts and stay in memory, so that they are not free for the
    /// task.
    pub coming: u64,
    pub need: MemoryEstimate,
    /// The number of all members, and of the images of a batch.
    pub whole: ChunkSize,
    /// The members and images in memory at the same time where passes are divided on this machine; `None` where they are not.
    pub at_most: Option<AtMost>,
    /// The number of members at once that the user asks for; 0 for all.
    pub members: Option<usize>,
    pub device: Device,
    /// The advice in messages on how the task would need less memory.
    pub advice: &'a str,
}

/// The way in which a task would run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    pub cut: ChunkSize,
    /// The bytes that it would take, with those that are created before it; more than are free where even the smallest cut does not fit.
    pub bytes: u64,
}

impl Task<'_> {
    /// Cuts the task so that it fits in the memory that is free now.
    ///
    /// # Errors
    /// Fails if one member and one image do not fit. The message gives the amount needed and advice.
    pub fn plan(&self) -> Result<Chunker> {
        let all = free_bytes(self.device);
        let free = all.map(|all| all.saturating_sub(self.coming));
        let cut = self.cut(free.map_or(u64::MAX, share_of));
        let bytes = self.need.bytes(cut, self.at_most);
        if let Some(all) = all.filter(|all| bytes.saturating_add(self.coming) > *all && cut.images == 1) {
            return Err(self.refusal(cut, bytes, all));
        }
        self.tell(cut, bytes, free);
        let planned = Planned {
            need: self.need,
            at_most: self.at_most,
            free,
            held: held_bytes(self.device).unwrap_or(0) + self.coming,
        };
        note(planned.held + bytes);
        Ok(Chunker::planned(cut, planned, self.what, self.advice))
    }

    /// Returns how the task would run where `free` bytes are free.
    pub fn within(&self, free: u64) -> Within {
        let cut = self.cut(share_of(free.saturating_sub(self.coming)));
        Within { cut, bytes: self.need.bytes(cut, self.at_most).saturating_add(self.coming) }
    }

    /// Returns the error that the smallest cut needs `bytes` bytes, which is more than the `free` ones.
    fn refusal(&self, cut: ChunkSize, bytes: u64, free: u64) -> anyhow::Error {
        let ChunkSize { members, .. } = cut;
        let plural = if members == 1 { "" } else { "s" };
        let always = match self.coming {
            0 => String::new(),
            coming => format!(" ({} GiB of it however few they are)", shown(coming.saturating_add(self.need.fixed))),
        };
        anyhow!(
            "{}: {members} member{plural} and one image at once need {} GiB{always}, but {} GiB is free: {}, or use a \
             machine with more memory",
            self.what,
            shown(bytes.saturating_add(self.coming)),
            shown(free),
            self.advice
        )
    }

    /// Returns the cut for `room` bytes, with the number of members that the user asks for.
    fn cut(&self, room: u64) -> ChunkSize {
        let fits = |cut| self.need.bytes(cut, self.at_most) <= room;
        match self.members {
            None => self.whole.fitting(false, fits),
            Some(asked) => {
                let members = if asked == 0 { self.whole.members } else { asked.min(self.whole.members) };
                ChunkSize { members, ..self.whole }.fitting(true, fits)
            }
        }
    }

    fn tell(&self, cut: ChunkSize, bytes: u64, free: Option<u64>) {
        let Some(free) = free else { return };
        let (what, ChunkSize { members, images }) = (self.what, cut);
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

    const NEED: MemoryEstimate = MemoryEstimate { fixed: 100, member: 10, image: 1, pair: 2 };
    const WHOLE: ChunkSize = ChunkSize { members: 8, images: 20 };

    fn task(members: Option<usize>) -> Task<'static> {
        Task {
            what: "test",
            coming: 0,
            need: NEED,
            whole: WHOLE,
            at_most: None,
            members,
            device: Device::Cpu,
            advice: "wait",
        }
    }

    #[test]
    fn asked_members_stay_and_images_give_way() {
        assert_eq!(task(Some(0)).cut(u64::MAX), WHOLE);
        assert_eq!(task(Some(3)).cut(u64::MAX), ChunkSize { members: 3, images: 20 });
        // 100 + 8·10 = 180, and 17 an image.
        assert_eq!(task(Some(0)).cut(180 + 10 * 17), ChunkSize { members: 8, images: 10 });
    }

    #[test]
    fn a_plan_for_another_machine_takes_its_free_memory() {
        // Three quarters of 800 - 200 bytes are 450: 100 + 8·10 = 180, and 17 an image; 20 images are halved.
        let task = Task { coming: 200, ..task(Some(0)) };
        let of =
            |images: usize| Within { cut: ChunkSize { members: 8, images }, bytes: 200 + 180 + images as u64 * 17 };
        assert_eq!(task.within(800), of(10));
        assert_eq!(task.within(100), of(1), "more than there is");
    }

    #[test]
    fn too_little_memory_is_refused_with_the_amount() {
        let need = MemoryEstimate { member: 1 << 60, ..NEED };
        let error = Task { need, ..task(None) }.plan().unwrap_err().to_string();
        assert!(error.contains("test: 1 member and one image at once need 1073741824.0 GiB, but"), "{error}");
        assert!(error.ends_with("is free: wait, or use a machine with more memory"), "{error}");
    }

    #[test]
    fn what_is_made_before_the_task_is_not_free_for_it() {
        let error = Task { coming: 1 << 60, ..task(None) }.plan().unwrap_err().to_string();
        assert!(error.contains("need 1073741824.0 GiB (1073741824.0 GiB of it however few they are), but"), "{error}");
    }
}
