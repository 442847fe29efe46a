//! How many particles and images go through the network at once in training: as many as memory allows.

use std::rc::Rc;

use anyhow::Result;
use tch::Kind;

use crate::base::tensor::ROOM_TO_TRAIN;
use crate::experiment::{Batches, Selection, TrainSpec};
use crate::machine::Chunk;
use crate::machine::memory::{Cut, Cutter, Need, Task};
use crate::methods::Method;
use crate::model::Model;
use crate::model::network::Graph;
use crate::subspace::Layout;

/// What a training step works on.
pub struct Step<'a> {
    pub spec: &'a TrainSpec,
    pub model: &'a Model,
    pub layout: &'a Layout,
    pub method: &'a dyn Method,
    /// Training images.
    pub images: usize,
    /// Particles in all.
    pub particles: usize,
    /// Particles whose gradients this process computes.
    pub own: usize,
    /// Whether the best particles are kept beside the present ones.
    pub validates: bool,
}

impl Step<'_> {
    /// The memory of a step besides what is held already: theta, and what the method keeps from step to step.
    fn need(&self) -> Need {
        let Step { spec, model, layout, .. } = self;
        let parameters = layout.parameters() as u64;
        let matrix = self.particles as u64 * parameters * Kind::Float.elt_size_in_bytes() as u64;
        let clipped = u64::from(spec.clip_norm.is_some());
        let keeps_best = self.validates && spec.select == Selection::Best;
        let best = if keeps_best { self.method.matrices_of_the_posterior() } else { 0 };
        let matrices = self.method.matrices_of_a_step() + clipped + best;
        let own_samples = spec.batches == Batches::Independent;
        let pass = model.need(Graph::Weights { trained: *layout, recompute: spec.recompute, own_samples });
        // The gradients of the graph's leaves, and the leaves: those of one particle in f32 are theta itself.
        let tensors = if self.particles == 1 && model.kind == Kind::Float { 1 } else { 2 };
        let member = tensors * parameters * model.kind.elt_size_in_bytes() as u64;
        Need { fixed: matrices * matrix, member, ..pass }
    }

    /// Cuts the step to the memory that is free now.
    ///
    /// # Errors
    /// One particle and one image do not fit.
    pub fn plan(&self) -> Result<Rc<Cutter>> {
        let images = self.spec.batch_size.min(self.images).div_ceil(self.spec.accumulate.parts());
        let members = match self.spec.particle_chunk {
            Chunk::Auto => None,
            Chunk::Fixed(count) => Some(count),
        };
        let whole = Cut { members: self.own, images };
        let (what, device, advice) = ("training step", self.model.device, ROOM_TO_TRAIN);
        Task { what, need: self.need(), whole, members, device, advice }.plan().map(Rc::new)
    }
}
