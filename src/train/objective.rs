//! The likelihood of a batch as the methods see it: one forward and one backward for all particles.

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::mixing::Mixing;
use super::recompute::Segments;
use crate::images::Batch;
use crate::methods::{Evaluation, Mixed, Objective};
use crate::model::{Input, Model};
use crate::subspace::Subspace;
use crate::tensor::label_log_probabilities;

/// How a batch is cut; results do not depend on it beyond rounding.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Particles a forward; 0 for all.
    pub particle_chunk: usize,
    /// Parts of a batch.
    pub accumulate: usize,
    /// Activations are computed again on the way back.
    pub recompute: bool,
}

impl Cut {
    /// All particles and the whole batch in one forward.
    pub const WHOLE: Cut = Cut { particle_chunk: 0, accumulate: 1, recompute: false };
}

/// Mean cross-entropy of one batch.
pub struct Likelihood<'a> {
    model: &'a Model,
    subspace: &'a dyn Subspace,
    cut: Cut,
    /// With p = 1 where all particles see the same.
    input: Input,
    /// `[p, B]`.
    labels: Tensor,
}

impl<'a> Likelihood<'a> {
    /// The likelihood of a batch of bytes `[p·B, 3, h, w]`.
    pub fn new(model: &'a Model, subspace: &'a dyn Subspace, cut: Cut, batch: &Batch, orders: i64) -> Likelihood<'a> {
        let input = Input::Images(model.preprocess.images(&batch.bytes, orders));
        Likelihood::on(model, subspace, cut, input, batch.labels.view([orders, -1]))
    }

    /// The likelihood of labels `[p, B]`.
    pub fn on(model: &'a Model, subspace: &'a dyn Subspace, cut: Cut, input: Input, labels: Tensor) -> Likelihood<'a> {
        Likelihood { model, subspace, cut, input, labels }
    }

    /// Losses `[k]` of the particles in `leaves` on some of the batch, and the gradients of their sum times `weight` by
    /// `leaves`, then by those of `mixing`.
    fn gradients(&self, leaves: &[Tensor], mixing: &Mixing, of: Portion) -> Result<(Tensor, Vec<Tensor>)> {
        let particles = leaves[0].size()[0];
        let rows = |t: &Tensor| if t.size()[0] == 1 { t.shallow_clone() } else { t.narrow(0, of.start, particles) };
        let samples = |t: &Tensor| rows(t).narrow(1, of.from, of.samples);
        let input = self.input.map(samples);
        let labels = samples(&self.labels).expand([particles, -1], false);
        let mut weights = self.subspace.weights(&self.model.base, leaves);
        mixing.attach(&mut weights, of.start, particles);
        let losses = |logits: &Tensor| {
            let kind = logits.kind();
            let losses = -label_log_probabilities(logits, &labels, kind).mean_dim([1i64].as_slice(), false, kind);
            losses * of.weight
        };
        let inputs: Vec<&Tensor> = leaves.iter().chain(mixing.leaves()).collect();
        if self.cut.recompute {
            let first = self.subspace.layout().first_block(self.model.vit.geometry.blocks);
            return Segments { model: self.model, weights: &weights, first }.gradients(&input, &inputs, losses);
        }
        let losses = losses(&self.model.logits_of(&weights, &input));
        // A root without a graph would be a segmentation fault.
        ensure!(losses.requires_grad(), "the loss does not depend on any trainable parameter");
        let gradients = Tensor::f_run_backward(&[losses.sum(losses.kind())], &inputs, false, false)?;
        Ok((losses.detach(), gradients))
    }
}

/// Some particles on some of a batch.
#[derive(Clone, Copy)]
struct Portion {
    /// First particle.
    start: i64,
    /// First sample and number of samples.
    from: i64,
    samples: i64,
    /// Of their loss in that of the batch.
    weight: f64,
}

impl Objective for Likelihood<'_> {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        self.over(theta, 0..self.parts(), &Mixing::none(self.subspace.layout()))
    }

    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let layout = self.subspace.layout();
        let (blocks, n) = (layout.blocks.len() as i64, theta.size()[0]);
        let size = matrices.size();
        ensure!(size == [blocks, n, n], "mixing matrices {size:?} for {blocks} blocks of {n} particles");
        let mixing = Mixing::new(layout, theta, self.model.kind, matrices);
        let own = self.over(theta, 0..self.parts(), &mixing)?;
        let gradients = mixing.finish(&own.gradients);
        Ok(Mixed { own, gradients })
    }

    fn parts(&self) -> usize {
        let (batch, part) = self.cuts();
        (batch as u64).div_ceil(part as u64) as usize
    }

    fn share(&self, part: usize) -> f64 {
        self.samples(part).1 as f64 / self.cuts().0 as f64
    }

    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        self.over(theta, part..part + 1, &Mixing::none(self.subspace.layout()))
    }
}

impl Likelihood<'_> {
    /// Samples of the batch, and of a part but the last.
    fn cuts(&self) -> (i64, i64) {
        let batch = self.labels.size()[1];
        (batch, (batch as u64).div_ceil(self.cut.accumulate as u64) as i64)
    }

    /// First sample and number of samples of a part.
    fn samples(&self, part: usize) -> (i64, i64) {
        let (batch, size) = self.cuts();
        let from = part as i64 * size;
        (from, size.min(batch - from))
    }

    /// Losses and gradients over some parts, each times its share of the batch; mixed ones go into `mixing`.
    fn over(&self, theta: &Tensor, parts: Range<usize>, mixing: &Mixing) -> Result<Evaluation> {
        let layout = self.subspace.layout();
        let (particles, parameters) = theta.size2()?;
        let gradients = Tensor::zeros([particles, parameters], (theta.kind(), theta.device()));
        let mut losses = Vec::new();
        let chunk = if self.cut.particle_chunk == 0 { particles } else { self.cut.particle_chunk as i64 };
        for start in (0..particles).step_by(chunk as usize) {
            let count = chunk.min(particles - start);
            let leaves = layout.leaves(&theta.narrow(0, start, count), self.model.kind, true);
            let rows = gradients.narrow(0, start, count);
            let mut total = Tensor::zeros([count], (Kind::Float, theta.device()));
            for part in parts.clone() {
                let (from, samples) = self.samples(part);
                let of = Portion { start, from, samples, weight: self.share(part) };
                let (part_losses, found) = self.gradients(&leaves, mixing, of)?;
                let (own, mixed) = found.split_at(leaves.len());
                layout.gather(own, &rows);
                mixing.gather(mixed);
                total += part_losses;
            }
            losses.push(total);
        }
        Ok(Evaluation { losses: Tensor::cat(&losses, 0), gradients })
    }
}
