//! How many particles go through the network at once.

use serde::Serialize;

/// How many particles go through the network at once; results do not depend on it beyond rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// As many as memory allows.
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
