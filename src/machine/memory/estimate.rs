//! The memory that a task needs, and the largest cut of it that fits in a given number of bytes.

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
    use super::*;

    const NEED: MemoryEstimate = MemoryEstimate { fixed: 100, member: 10, image: 1, pair: 2 };
    const WHOLE: ChunkSize = ChunkSize { members: 8, images: 20 };

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
