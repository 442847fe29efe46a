//! The machine that an estimate is for, and how long it takes.

use tch::Kind;

use crate::machine::Precision;

/// The share of the rate of matrix products that a training step reaches: 0.64 to 0.72 were measured on two cores
/// (results/speed.md).
pub const SHARE: f64 = 0.65;

/// The machine that the estimate is for.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The rate of large matrix products, in floating-point operations per second.
    pub rate: f64,
    /// The number of images that are decoded and resized per second.
    pub image_rate: f64,
    /// The free memory of the computing device, in bytes.
    pub memory: u64,
    /// The type that `train.precision = "auto"` stands for.
    pub auto: Kind,
}

impl Machine {
    /// Returns the type that a precision stands for.
    pub fn kind(&self, precision: Precision) -> Kind {
        match precision {
            Precision::Auto => self.auto,
            Precision::F32 => Kind::Float,
            Precision::Bf16 => Kind::BFloat16,
            Precision::F64 => Kind::Double,
        }
    }
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// The floating-point operations.
    pub flop: f64,
    /// The number of images that are decoded.
    pub decoded: f64,
}

impl Part {
    /// Returns the seconds that the part takes. Images are decoded while the step before computes.
    pub fn seconds(&self, machine: &Machine) -> f64 {
        (self.flop / (SHARE * machine.rate)).max(self.decoded / machine.image_rate)
    }
}
