//! The likelihood of a batch as the methods see it: one forward and one backward for all particles.

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::mixing::Mixing;
use crate::images::Batch;
use crate::methods::{Evaluation, Mixed, Objective};
use crate::model::Model;
use crate::subspace::Subspace;
use crate::tensor::label_log_probabilities;

/// How a batch is cut; results do not depend on it beyond rounding.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Particles a forward; 0 for all.
    pub particle_chunk: usize,
    /// Parts of a batch.
    pub accumulate: usize,
}

/// Mean cross-entropy of one batch.
pub struct Likelihood<'a> {
    model: &'a Model,
    subspace: &'a dyn Subspace,
    cut: Cut,
    /// Normalised images `[p, B, 3, S, S]`, p = 1 where all particles see the same.
    images: Tensor,
    /// `[p, B]`.
    labels: Tensor,
}

impl<'a> Likelihood<'a> {
    /// The likelihood of a batch of bytes `[p·B, 3, h, w]`.
    pub fn new(model: &'a Model, subspace: &'a dyn Subspace, cut: Cut, batch: &Batch, orders: i64) -> Likelihood<'a> {
        let images = model.preprocess.images(&batch.bytes, orders);
        let labels = batch.labels.view([orders, -1]);
        Likelihood { model, subspace, cut, images, labels }
    }

    /// Losses `[k]` of particles `start..start + k` on samples `from..from + count` of the batch, in the graph of `leaves`.
    fn losses(&self, leaves: &[Tensor], mixing: &Mixing, start: i64, from: i64, count: i64) -> Tensor {
        let particles = leaves[0].size()[0];
        let rows = |t: &Tensor| if t.size()[0] == 1 { t.shallow_clone() } else { t.narrow(0, start, particles) };
        let images = rows(&self.images).narrow(1, from, count);
        let labels = rows(&self.labels).narrow(1, from, count).expand([particles, -1], false);
        let mut weights = self.subspace.weights(&self.model.base, leaves);
        mixing.attach(&mut weights, start, particles);
        let logits = self.model.logits(&weights, &images);
        let kind = logits.kind();
        -label_log_probabilities(&logits, &labels, kind).mean_dim([1i64].as_slice(), false, kind)
    }
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
        let batch = self.images.size()[1];
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
                let loss = self.losses(&leaves, mixing, start, from, samples);
                // A root without a graph would be a segmentation fault.
                ensure!(loss.requires_grad(), "the loss does not depend on any trainable parameter");
                let weight = self.share(part);
                let root = loss.sum(loss.kind()) * weight;
                let inputs: Vec<&Tensor> = leaves.iter().chain(mixing.leaves()).collect();
                let found = Tensor::f_run_backward(&[root], &inputs, false, false)?;
                let (own, mixed) = found.split_at(leaves.len());
                layout.gather(own, &rows);
                mixing.gather(mixed);
                total += loss.detach() * weight;
            }
            losses.push(total);
        }
        Ok(Evaluation { losses: Tensor::cat(&losses, 0), gradients })
    }
}
