//! How many particles and images go through the network at once in training: as many as memory allows.

use std::rc::Rc;

use anyhow::Result;
use tch::Kind;

use crate::base::tensor::ROOM_TO_TRAIN;
use crate::experiment::{Batches, Selection, TrainSpec, Training};
use crate::machine::Chunk;
use crate::machine::memory::{Cut, Cutter, Need, Task};
use crate::methods::MethodSpec;
use crate::model::Model;
use crate::model::vit::footprint::Graph;
use crate::subspace::Layout;

/// What a training step works on.
pub struct Step<'a> {
    pub spec: &'a TrainSpec,
    pub model: &'a Model,
    pub layout: &'a Layout,
    pub method: &'a dyn MethodSpec,
    /// Training images.
    pub images: usize,
    /// Particles in all.
    pub particles: usize,
    /// Particles whose gradients this process computes.
    pub own: usize,
    /// Whether the best particles are kept beside the present ones.
    pub validates: bool,
    /// Bytes of what is made between the plan and the first step, and stays.
    pub coming: u64,
}

/// Bytes of theta `[n, P]` with what method and optimizer keep of it from step to step.
pub fn state_bytes(training: &Training, parameters: i64) -> u64 {
    let spec = &training.method.spec;
    let matrices = 1 + spec.kept_matrices() + training.optimizer.spec.kept_matrices();
    matrices * (spec.particles() * parameters) as u64 * Kind::Float.elt_size_in_bytes() as u64
}

impl Step<'_> {
    /// The memory of a step besides theta, and what method and optimizer keep from step to step.
    fn need(&self) -> Need {
        let Step { spec, model, layout, .. } = self;
        let parameters = layout.parameters() as u64;
        let matrix = self.particles as u64 * parameters * Kind::Float.elt_size_in_bytes() as u64;
        let clipped = u64::from(spec.clip_norm.is_some());
        // The best particles, and their standard deviations.
        let best = match (self.validates && spec.select == Selection::Best, self.method.is_gaussian()) {
            (false, _) => 0,
            (true, gaussian) => 1 + u64::from(gaussian),
        };
        let matrices = self.method.matrices_of_a_step(spec.accumulate.parts()) + clipped + best;
        let own_images = spec.batches == Batches::Independent;
        let pass = model.need(Graph::Weights { trained: *layout, recompute: spec.recompute, own_images });
        // The gradients of the graph's leaves, and the leaves: in f32 they are theta itself.
        let tensors = if model.kind == Kind::Float { 1 } else { 2 };
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
        Task { what, coming: self.coming, need: self.need(), whole, members, device, advice }.plan().map(Rc::new)
    }
}
