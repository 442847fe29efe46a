//! Two settings of every computation: the type of its numbers, and the number of particles that go through a network at once.

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::schema::{Field, Reader, Setting, words};

words! {
    /// The type in which forward and backward passes run. Master weights, kernels and the optimizer's state are f32.
    pub enum Precision {
        F32 = "f32",
        /// Double precision, to check formulas; slow.
        F64 = "f64",
        Bf16 = "bf16",
        /// Half precision with scaled losses, for GPUs without bf16.
        F16 = "f16",
        /// bf16 where this machine computes it natively.
        Auto = "auto",
    }
}

/// The number of particles that go through the network at once. Results depend on it only through rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// The number is the largest that fits in memory.
    Auto,
    /// A fixed number; 0 for all.
    Fixed(usize),
}

impl Setting for Chunk {
    type Range = RangeInclusive<usize>;

    fn field(reader: &Reader, key: &str, range: RangeInclusive<usize>) -> Field<Chunk> {
        reader.count_or_auto(key, range).map(|count| count.map_or(Chunk::Auto, Chunk::Fixed))
    }

    fn stand_in() -> Chunk {
        Chunk::Auto
    }
}

impl Serialize for Chunk {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Chunk::Auto => serializer.serialize_str("auto"),
            Chunk::Fixed(count) => serializer.serialize_u64(*count as u64),
        }
    }
}
