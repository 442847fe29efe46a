//! Draws of weights through the linearised network, f*(x) + J(x) δ with δ ~ N(0, (H + τ)⁻¹), by forward derivatives: all draws of a
//! particle go through the network at once, as so many members, and there is no backward pass ([`crate::model::network::ops::dual`]).
//!
//! For one image these are draws from N(f*, V), as those of `mc` are; no V, and so no Jacobian of each class, is needed for
//! them. Draw s moves the weights by the same δ as draw s of `sampled`, so it is that member to first order.

use anyhow::{Context, Result};
use tch::{Kind, Tensor, no_grad};

use super::pass::Maps;
use super::{Fitted, maps_of};
use crate::base::random::posterior_row;
use crate::data::Fields;
use crate::machine::memory::{self, MemoryEstimate};
use crate::model::Model;
use crate::model::network::ops::{Dual, Tangents};
use crate::model::network::{Graph, Weights};
use crate::predict::{Kept, Linear, in_parts};
use crate::subspace::Subspace;

/// The error where a network has no forward derivatives.
pub const NOT_WRITTEN: &str = "predictive = \"tangent\" needs a network that is written over operations, which this one is not: use mc, probit, \
                           bridge or sampled, or set method.laplace.parameters = \"last-layer\"";

/// A point in weight space, and moves of it.
pub struct Moves<'a> {
    pub subspace: &'a dyn Subspace,
    pub maps: &'a Maps,
    /// The particle, `[1, P]`.
    pub theta: &'a Tensor,
    /// Moves δ of the columns of the maps, `[S, columns]`.
    pub moves: &'a Tensor,
}

impl Moves<'_> {
    /// Returns the logits `[1, B, C]` of prepared samples `[1, B, …]`, and their derivatives J δ, `[S, B, C]`, without a graph.
    ///
    /// # Errors
    /// Fails for a network that is not written over operations, unless only its head moves.
    pub fn logits(&self, model: &Model, samples: &Fields) -> Result<Dual> {
        let _guard = tch::no_grad_guard();
        let layout = self.subspace.layout();
        let mode = self.subspace.weights(&model.base, &layout.leaves(self.theta, model.kind, false));
        if self.maps.only_head() {
            let moves = self.of_head(model);
            let features = Dual::fixed(model.network.forward(&mode, samples));
            return Ok(model.head.logits_along(&Tangents::new(&mode, &moves), &features));
        }
        let moves = self.subspace.weights(&model.base, &layout.leaves(self.moves, model.kind, false));
        let tangents = Tangents::new(&mode, &moves);
        let samples = samples.map(|values| Dual::fixed(values.shallow_clone()));
        let features = model.network.written().context(NOT_WRITTEN)?.along(&tangents, &samples);
        Ok(model.head.logits_along(&tangents, &features))
    }

    /// Returns moves of the head alone: of its weight, then of its bias.
    fn of_head<'m>(&self, model: &'m Model) -> Weights<'m> {
        let mut weights = Weights::frozen(&model.base);
        let (classes, width) = (self.maps.maps[0].outputs, self.maps.maps[0].inputs);
        let count = self.moves.size()[0];
        let part = |start: i64, shape: &[i64]| {
            self.moves.narrow(1, start, shape.iter().skip(1).product()).reshape(shape).to_kind(model.kind)
        };
        weights.replace("head.weight", part(0, &[count, classes, width]));
        weights.replace("head.bias", part(classes * width, &[count, classes]));
        weights
    }
}

/// Draws of linearised logits around each particle.
pub struct Drawn<'a> {
    subspace: &'a dyn Subspace,
    /// The particles, `[n, P]`.
    theta: &'a Tensor,
    fitted: &'a Fitted,
    maps: Maps,
    /// The prior precisions, one a particle.
    precisions: Vec<f64>,
    /// The number of draws per particle.
    samples: usize,
    seed: u64,
    /// The moves that have been computed, each particle by itself.
    made: Kept<Tensor>,
}

impl<'a> Drawn<'a> {
    /// Checks that the Gaussians fit the model and prepares `samples` draws around each particle.
    ///
    /// # Errors
    /// Fails if the Gaussians were fitted to a model of another shape.
    pub fn new(
        subspace: &'a dyn Subspace,
        theta: &'a Tensor,
        fitted: &'a Fitted,
        samples: usize,
        seed: u64,
    ) -> Result<Drawn<'a>> {
        let (maps, precisions) = (maps_of(subspace, fitted)?, fitted.particles.iter().map(|p| p.precision).collect());
        Ok(Drawn { subspace, theta, fitted, maps, precisions, samples, seed, made: Kept::default() })
    }

    /// Returns the same draws with another prior precision for all particles.
    pub fn with_precision(self, precision: f64) -> Drawn<'a> {
        Drawn { precisions: vec![precision; self.precisions.len()], made: Kept::default(), ..self }
    }

    /// Returns the moves δ of a particle, `[S, columns]`.
    fn moves(&self, particle: usize) -> Tensor {
        let (start, columns) = (self.maps.columns.start, self.maps.parameters());
        let curvature = &self.fitted.particles[particle].curvature;
        let moves = Tensor::empty([self.samples as i64, columns], (self.theta.kind(), self.theta.device()));
        for sample in 0..self.samples as i64 {
            let epsilon = posterior_row(self.seed, sample, particle as i64, self.theta).narrow(0, start, columns);
            moves.get(sample).copy_(&curvature.deviation(self.precisions[particle], &epsilon));
        }
        moves
    }
}

impl Linear for Drawn<'_> {
    /// Returns the number of members, one per draw.
    fn count(&self) -> usize {
        self.fitted.particles.len() * self.samples
    }

    /// Returns the memory of a pass over an image of the particle and of each draw. Derivatives also hold what they are made of: queries,
    /// keys and values next to theirs, and the scores of attention, so that they take about `TIMES` as much as a pass.
    fn need(&self, model: &Model) -> MemoryEstimate {
        const TIMES: u64 = 3;
        let pass = model.need(Graph::None);
        let (row, number) = (self.maps.parameters() as u64, self.theta.kind().elt_size_in_bytes() as u64);
        let one = row * number * self.samples as u64;
        let all = one * self.fitted.particles.len() as u64;
        // Half of the room, so that the other half is there for the passes.
        self.made.keep_all(memory::room(model.device).is_none_or(|room| 2 * all <= room));
        let kept = if self.made.keeps_all() { all } else { one };
        // The noise of a whole row in its own type, and the move in f64 several times.
        let making = self.theta.size()[1] as u64 * number + 4 * row * Kind::Double.elt_size_in_bytes() as u64;
        let weights = row * model.kind.elt_size_in_bytes() as u64;
        let logits = (model.head.classes() * 4 * Kind::Double.elt_size_in_bytes() as i64) as u64;
        let pair = if self.maps.only_head() { logits } else { TIMES * pass.pair + logits };
        MemoryEstimate {
            fixed: pass.fixed + kept + making,
            member: weights,
            image: pass.image + TIMES * pass.pair,
            pair,
        }
    }

    fn images_at_once(&self, _: &Model) -> usize {
        usize::MAX
    }

    fn members_at_once(&self) -> usize {
        self.samples
    }

    /// Returns the logits of all draws. Those of one particle are adjacent.
    fn logits(&self, model: &Model, samples: &Fields, at_once: usize) -> Result<Tensor> {
        no_grad(|| {
            let mut members = Vec::new();
            for particle in 0..self.fitted.particles.len() {
                let theta = self.theta.narrow(0, particle as i64, 1);
                let own = particle..particle + 1;
                let all = self.made.each(&[own], |_| Ok(self.moves(particle)))?.remove(0);
                for part in in_parts(0..self.samples, at_once) {
                    let moves = &all.narrow(0, part.start as i64, part.len() as i64);
                    let drawn = Moves { subspace: self.subspace, maps: &self.maps, theta: &theta, moves };
                    let Dual { value, moved } = drawn.logits(model, samples)?;
                    let moved = moved.context("the logits do not depend on any trained layer")?;
                    members.push(value.to_kind(Kind::Double) + moved.to_kind(Kind::Double));
                }
            }
            Ok(Tensor::cat(&members, 0))
        })
    }
}
