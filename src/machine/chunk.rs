//! The number of particles that go through the network at once.

use serde::Serialize;

/// The number of particles that go through the network at once. Results depend on it only through rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// As many particles as fit in memory.
    Auto,
    /// A fixed number; 0 for all.
    Fixed(usize),
}

impl Serialize for Chunk {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Chunk::Auto => serializer.serialize_str("auto"),
            Chunk::Fixed(count) => serializer.serialize_u64(*count as u64),
        }
    }
}
