//! How many particles go through the network at once, in training and in validation.

use crate::experiment::TrainSpec;
use crate::machine::Chunk;
use crate::memory::{Footprint, particles_at_once};
use crate::model::Model;
use crate::subspace::Layout;

/// Particles a forward.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    pub training: usize,
    pub predicting: usize,
}

impl Chunks {
    /// What the config says, or memory allows.
    pub fn new(spec: &TrainSpec, model: &Model, layout: &Layout, particles: usize) -> Chunks {
        let footprint = Footprint::new(model, layout, spec.recompute);
        let samples = spec.batch_size.div_ceil(spec.accumulate);
        let of = |images, bytes| particles_at_once(spec.particle_chunk, particles, images, bytes, model.device);
        let chunks = Chunks {
            training: of(samples, footprint.training),
            predicting: of(spec.eval_batch_size, footprint.predicting),
        };
        if spec.particle_chunk == Chunk::Auto && chunks.training < particles {
            tracing::info!("{} particles go through the network at once: more would not fit", chunks.training);
        }
        chunks
    }
}
