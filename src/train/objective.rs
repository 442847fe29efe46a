//! The likelihood of a batch as the methods see it: one forward and one backward pass for all particles. [`Shared`]
//! splits the same computation over several processes.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::mixing::Mixing;
use super::recompute::Segments;
use crate::base::tensor::{ROOM_TO_TRAIN, label_log_probabilities};
use crate::data::batches::Batch;
use crate::machine::memory;
use crate::machine::memory::Cutter;
use crate::machine::parallel::{Share, Team};
use crate::methods::{Evaluation, Mixed, Objective, Squared};
use crate::model::{Input, Model};
use crate::predict::in_parts;
use crate::subspace::Subspace;

/// The split of a batch. Losses and gradients depend on it only through rounding.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The number of particles in one forward pass; 0 for all.
    pub particle_chunk: usize,
    /// The number of parts of a batch.
    pub accumulate: usize,
    /// Whether activations are recomputed in the backward pass.
    pub recompute: bool,
}

impl Cut {
    /// All particles and the whole batch in one forward pass.
    pub const WHOLE: Cut = Cut { particle_chunk: 0, accumulate: 1, recompute: false };

    /// Returns the samples of this process in each part of a batch.
    pub fn samples(&self, share: &Share, batch: usize) -> Vec<Range<usize>> {
        share.samples(batch, batch.div_ceil(self.accumulate))
    }
}

/// The mean cross-entropy of one batch, or the share of it that this process computes.
pub struct Likelihood<'a> {
    model: &'a Model,
    subspace: &'a dyn Subspace,
    cut: Cut,
    /// The number of particles and images that go through the network at once.
    cutter: Rc<Cutter>,
    /// The input of b of the batch's B samples, with p = 1 if all particles see the same.
    input: Input,
    /// The labels, `[p, b]`.
    labels: Tensor,
    /// The range of these b samples in each part of the batch.
    parts: Vec<Range<usize>>,
    /// The size B of the batch.
    batch: usize,
}

impl<'a> Likelihood<'a> {
    /// Returns the likelihood of a batch of bytes `[p·B, 3, h, w]`.
    pub fn new(model: &'a Model, subspace: &'a dyn Subspace, cut: Cut, batch: &Batch, orders: i64) -> Likelihood<'a> {
        let input = Input::Stored(batch.samples.unflatten(0, [orders, -1].as_slice()));
        Likelihood::on(model, subspace, cut, input, batch.labels.view([orders, -1]))
    }

    /// Returns the likelihood of labels `[p, B]`.
    pub fn on(model: &'a Model, subspace: &'a dyn Subspace, cut: Cut, input: Input, labels: Tensor) -> Likelihood<'a> {
        let (orders, batch) = (labels.size()[0] as usize, labels.size()[1] as usize);
        let members = if cut.particle_chunk == 0 { usize::MAX } else { cut.particle_chunk };
        let at_once = memory::Cut { members, images: batch.max(1) };
        let cutter = Rc::new(Cutter::fixed(at_once, "training step", ROOM_TO_TRAIN));
        let whole = Likelihood { model, subspace, cut, cutter, input, labels, parts: Vec::new(), batch };
        whole.of_share(&Share::whole(orders), batch)
    }

    /// Returns the same likelihood, split as `cutter` has planned or learnt from earlier steps.
    pub fn cut_by(self, cutter: Rc<Cutter>) -> Likelihood<'a> {
        Likelihood { cutter, ..self }
    }

    /// Returns the same likelihood, with these samples as a process's share of a batch of `batch` samples.
    pub fn of_share(self, share: &Share, batch: usize) -> Likelihood<'a> {
        let mut here = 0;
        let parts = self.cut.samples(share, batch).into_iter().map(|part| {
            here += part.len();
            here - part.len()..here
        });
        Likelihood { parts: parts.collect(), batch, ..self }
    }

    /// Returns the losses `[k]` of the particles in `leaves` on a part of the batch, and the gradients of their sum
    /// times `weight` with respect to `leaves`. Mixed gradients go into `mixing`.
    fn gradients(&self, leaves: &[Tensor], mixing: &Mixing, of: Portion) -> Result<(Tensor, Vec<Tensor>)> {
        let particles = leaves[0].size()[0];
        let rows = |t: &Tensor| if t.size()[0] == 1 { t.shallow_clone() } else { t.narrow(0, of.start, particles) };
        let samples = |t: &Tensor| rows(t).narrow(1, of.from, of.samples);
        let input = self.input.map(samples);
        let labels = samples(&self.labels).expand([particles, -1], false);
        let mut weights = self.subspace.weights(&self.model.base, leaves);
        let forward = mixing.forward(&mut weights, of.particle, particles);
        let losses = |logits: &Tensor| {
            let kind = logits.kind();
            let losses = -label_log_probabilities(logits, &labels, kind).mean_dim([1i64].as_slice(), false, kind);
            losses * of.weight
        };
        let leaves: Vec<&Tensor> = leaves.iter().collect();
        if self.cut.recompute {
            let first = self.model.network.first_stage(self.subspace.layout());
            let segments = Segments { model: self.model, weights: &weights, forward, first };
            return segments.gradients(&input, &leaves, losses);
        }
        let losses = losses(&self.model.logits_of(&weights, &input)?);
        let gradients = forward.back(&losses.sum(losses.kind()), &leaves)?;
        Ok((losses.detach(), gradients))
    }
}

/// Some particles on a part of the batch.
#[derive(Clone, Copy)]
struct Portion {
    /// The index of the first particle.
    particle: i64,
    /// The row of that particle among those in this process.
    start: i64,
    /// The first sample and the number of samples.
    from: i64,
    samples: i64,
    /// The weight of these samples in the loss of the whole batch.
    weight: f64,
}

impl Objective for Likelihood<'_> {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        self.over(theta, 0, 0..self.parts(), &Mixing::none(self.subspace.layout()))
    }

    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let mixing = self.mixing(theta, matrices)?;
        let own = self.over(theta, 0, 0..self.parts(), &mixing)?;
        let gradients = mixing.finish(&own.gradients);
        Ok(Mixed { own, gradients })
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn share(&self, part: usize) -> f64 {
        let size = self.batch.div_ceil(self.cut.accumulate);
        size.min(self.batch - part * size) as f64 / self.batch as f64
    }

    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        self.over(theta, 0, part..part + 1, &Mixing::none(self.subspace.layout()))
    }

    fn evaluate_squared(&mut self, theta: &Tensor, part: usize) -> Result<Squared> {
        let (gradients, squares) = (theta.zeros_like(), theta.zeros_like());
        let mut losses = Vec::new();
        for particle in 0..theta.size()[0] {
            let row = |of: &Tensor| of.narrow(0, particle, 1);
            losses.push(self.squares(&row(theta), particle, part, (&row(&gradients), &row(&squares)))?);
        }
        Ok(Squared { own: Evaluation { losses: Tensor::stack(&losses, 0), gradients }, squares })
    }
}

impl Likelihood<'_> {
    /// Returns the loss of `theta: [1, P]`, which is row `row` of those in this process, on a part of the batch. It adds the
    /// gradient of the part to `gradient: [1, P]`, and the squared gradients of its images, over the size of the batch, to
    /// `square: [1, P]`. Each image is passed through its own copy of the particle, so that one backward pass yields the
    /// gradients of several.
    fn squares(&self, theta: &Tensor, row: i64, part: usize, (gradient, square): (&Tensor, &Tensor)) -> Result<Tensor> {
        let (layout, batch) = (self.subspace.layout(), self.batch as f64);
        let at_once = layout.copies_at_once().min(self.cutter.cut().images);
        let mut total = Tensor::zeros([0i64; 0], (Kind::Float, theta.device()));
        for samples in in_parts(self.parts[part].clone(), at_once) {
            let count = samples.len() as i64;
            let own = |t: &Tensor| {
                let rows = if t.size()[0] == 1 { t.shallow_clone() } else { t.narrow(0, row, 1) };
                rows.narrow(1, samples.start as i64, count).transpose(0, 1)
            };
            let (input, labels) = (self.input.map(own), own(&self.labels));
            let leaves = layout.leaves(&theta.expand([count, -1], false), self.model.kind, true);
            let logits = self.model.logits_of(&self.subspace.weights(&self.model.base, &leaves), &input)?;
            let losses = -label_log_probabilities(&logits, &labels, logits.kind());
            let loss = losses.sum(losses.kind());
            ensure!(loss.requires_grad(), "the loss does not depend on any trainable parameter");
            let each = Tensor::zeros([count, layout.parameters()], (theta.kind(), theta.device()));
            layout.gather(&Tensor::f_run_backward(&[&loss], &leaves, false, false)?, &each);
            let sum = |rows: &Tensor| rows.sum_dim_intlist([0i64].as_slice(), true, rows.kind()) / batch;
            let _ = gradient.shallow_clone().g_add_(&sum(&each));
            let _ = square.shallow_clone().g_add_(&sum(&each.square()));
            total += loss.detach() / batch;
        }
        Ok(total)
    }

    /// Returns the mixing of the gradients of all particles `theta: [n, P]` by `matrices: [L, n, n]`.
    fn mixing(&self, theta: &Tensor, matrices: &Tensor) -> Result<Mixing<'_>> {
        let layout = self.subspace.layout();
        let (blocks, n) = (layout.blocks.len() as i64, theta.size()[0]);
        let size = matrices.size();
        ensure!(size == [blocks, n, n], "mixing matrices {size:?} for {blocks} blocks of {n} particles");
        Ok(Mixing::new(layout, theta, self.model.kind, matrices))
    }

    /// Returns the losses and gradients of rows of theta over some parts, each sample weighted by its share of the
    /// batch. The first row is particle `first`. Mixed gradients go into `mixing`.
    fn over(&self, theta: &Tensor, first: i64, parts: Range<usize>, mixing: &Mixing) -> Result<Evaluation> {
        let (particles, parameters) = theta.size2()?;
        let gradients = Tensor::zeros([particles, parameters], (theta.kind(), theta.device()));
        let parts = &self.parts[parts];
        // Only the number of particles is adjusted. The images of this batch must not limit the next one, because the
        // last batch of an epoch may be smaller.
        self.cutter.clamp(particles as usize);
        let (mut losses, mut start) = (Vec::new(), 0);
        while start < particles {
            let tried = Cell::new(false);
            let chunk = |cut: memory::Cut| {
                let count = (cut.members as i64).min(particles - start);
                let rows = gradients.narrow(0, start, count);
                if tried.replace(true) {
                    let _ = rows.shallow_clone().zero_();
                }
                let samples = parts.iter().cloned().flat_map(|part| in_parts(part, cut.images));
                self.chunk(&theta.narrow(0, start, count), (first, start), samples, mixing, &rows)
            };
            // With mixing, a retry after running out of memory would add the mixed gradients twice.
            losses.push(if mixing.is_none() { self.cutter.run(chunk)? } else { chunk(self.cutter.cut())? });
            start += losses.last().map_or(0, |losses: &Tensor| losses.size()[0]);
        }
        Ok(Evaluation { losses: Tensor::cat(&losses, 0), gradients })
    }

    /// Returns the losses `[k]` of particles `theta: [k, P]` over some samples, and adds their gradients to
    /// `rows: [k, P]`. The first particle is row `start` of those in this process, and particle `first + start` of all.
    fn chunk(
        &self,
        theta: &Tensor,
        (first, start): (i64, i64),
        samples: impl Iterator<Item = Range<usize>>,
        mixing: &Mixing,
        rows: &Tensor,
    ) -> Result<Tensor> {
        let layout = self.subspace.layout();
        let leaves = layout.leaves(theta, self.model.kind, true);
        let mut total = Tensor::zeros([theta.size()[0]], (Kind::Float, theta.device()));
        for samples in samples {
            let of = Portion {
                particle: first + start,
                start,
                from: samples.start as i64,
                samples: samples.len() as i64,
                weight: samples.len() as f64 / self.batch as f64,
            };
            let (losses, found) = self.gradients(&leaves, mixing, of)?;
            layout.gather(&found, rows);
            total += losses;
        }
        Ok(total)
    }
}

/// The likelihood of a batch of which every process computes a share. Theta and the results are the same in all
/// processes.
pub struct Shared<'a> {
    pub own: Likelihood<'a>,
    pub team: &'a Team<'a>,
}

impl Shared<'_> {
    /// Returns this process's rows of `theta: [n, P]`, and the index of the first.
    fn rows(&self, theta: &Tensor) -> (Tensor, i64) {
        let rows = &self.team.share().rows;
        (theta.narrow(0, rows.start as i64, rows.len() as i64), rows.start as i64)
    }

    fn over(&self, theta: &Tensor, parts: Range<usize>) -> Result<Evaluation> {
        let (rows, first) = self.rows(theta);
        self.exchange(self.own.over(&rows, first, parts, &Mixing::none(self.own.subspace.layout()))?)
    }

    /// Returns the losses and gradients of all processes, given those of this process.
    fn exchange(&self, own: Evaluation) -> Result<Evaluation> {
        let (losses, gradients) = self.team.exchange(own.losses, own.gradients)?;
        Ok(Evaluation { losses, gradients })
    }
}

impl Objective for Shared<'_> {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        self.over(theta, 0..self.own.parts())
    }

    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let mut mixing = self.own.mixing(theta, matrices)?;
        let (rows, first) = self.rows(theta);
        let own = self.exchange(self.own.over(&rows, first, 0..self.own.parts(), &mixing)?)?;
        mixing.sum(|gradients| self.team.sum(gradients))?;
        let gradients = mixing.finish(&own.gradients);
        Ok(Mixed { own, gradients })
    }

    fn parts(&self) -> usize {
        self.own.parts()
    }

    fn share(&self, part: usize) -> f64 {
        self.own.share(part)
    }

    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        self.over(theta, part..part + 1)
    }

    fn evaluate_squared(&mut self, theta: &Tensor, part: usize) -> Result<Squared> {
        let (rows, _) = self.rows(theta);
        let Squared { own, squares } = self.own.evaluate_squared(&rows, part)?;
        let parameters = squares.size()[1];
        // Both travel in one message, side by side.
        let both = Evaluation { losses: own.losses, gradients: Tensor::cat(&[own.gradients, squares], 1) };
        let Evaluation { losses, gradients } = self.exchange(both)?;
        let half = |start: i64| gradients.narrow(1, start, parameters).contiguous();
        Ok(Squared { own: Evaluation { losses, gradients: half(0) }, squares: half(parameters) })
    }
}
