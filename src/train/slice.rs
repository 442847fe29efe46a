//! The pieces into which a step is split.

use std::ops::Range;

use tch::Tensor;

use crate::experiment::TrainSpec;
use crate::machine::parallel::Share;

/// The split of a step into passes. Losses and gradients depend on it only through rounding.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// The number of particles in one forward pass; 0 for all.
    pub particle_chunk: usize,
    /// The number of parts of a batch.
    pub accumulate: usize,
    /// Whether activations are recomputed in the backward pass.
    pub recompute: bool,
}

impl Passes {
    /// All particles and the whole batch in one forward pass.
    pub const WHOLE: Passes = Passes { particle_chunk: 0, accumulate: 1, recompute: false };

    /// Returns the split that a config asks for. How many particles go through the network at once is planned.
    pub fn of(spec: &TrainSpec) -> Passes {
        Passes { particle_chunk: 0, accumulate: spec.accumulate.parts(), recompute: spec.recompute }
    }

    /// Returns the samples of this process in each part of a batch.
    pub fn samples(&self, share: &Share, batch: usize) -> Vec<Range<usize>> {
        share.samples(batch, batch.div_ceil(self.accumulate))
    }
}

/// Some particles on some samples of a batch: what goes through the network at once.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    /// The number of the first particle.
    pub particle: i64,
    /// The row of that particle among those in this process.
    pub start: i64,
    /// The number of particles.
    pub count: i64,
    /// The first sample and the number of samples.
    pub from: i64,
    pub samples: i64,
    /// The weight of these samples in the loss of the whole batch.
    pub weight: f64,
}

impl Slice {
    /// Returns the particles and samples of the slice in `[p, b, …]`, where p = 1 if all particles have the same.
    pub fn of(&self, tensor: &Tensor) -> Tensor {
        let rows = match tensor.size()[0] {
            1 => tensor.shallow_clone(),
            _ => tensor.narrow(0, self.start, self.count),
        };
        rows.narrow(1, self.from, self.samples)
    }
}
