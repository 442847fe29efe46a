//! The likelihood of a batch as the methods see it: one forward and one backward pass for all particles.
//! [`super::shared`] splits the same computation over several processes.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor, no_grad};

use super::mixing::Mixing;
use super::portion::{Aim, Cut, Portion};
use super::recompute::Segments;
use crate::base::tensor::{ROOM_TO_TRAIN, upload};
use crate::data::batches::Batch;
use crate::machine::memory;
use crate::machine::memory::Cutter;
use crate::machine::parallel::Share;
use crate::methods::{Evaluation, HeadInputs, Mixed, Noisy, Objective, Outputs, Signs, Squared};
use crate::model::network::Weights;
use crate::model::{Input, Model};
use crate::predict::in_parts;
use crate::subspace::Subspace;

/// The mean cross-entropy of one batch, or the share of it that this process computes.
pub struct Likelihood<'a> {
    pub(super) model: &'a Model,
    pub(super) subspace: &'a dyn Subspace,
    pub(super) cut: Cut,
    /// The number of particles and images that go through the network at once.
    pub(super) cutter: Rc<Cutter>,
    /// The input of b of the batch's B samples, with p = 1 if all particles see the same.
    input: Input,
    /// The labels, `[p, b]`; for answers the places and tokens, `[p, b, A, 2]`.
    labels: Tensor,
    /// The range of these b samples in each part of the batch.
    pub(super) parts: Vec<Range<usize>>,
    /// The size B of the batch.
    pub(super) batch: usize,
}

impl<'a> Likelihood<'a> {
    /// Returns the likelihood of a batch of bytes `[p·B, 3, h, w]`.
    pub fn new(model: &'a Model, subspace: &'a dyn Subspace, cut: Cut, batch: &Batch, orders: i64) -> Likelihood<'a> {
        let several = |t: &Tensor| t.unflatten(0, [orders, -1].as_slice());
        Likelihood::on(model, subspace, cut, Input::Stored(several(&batch.samples)), several(&batch.labels))
    }

    /// Returns the likelihood of labels `[p, B]`, or of answers `[p, B, A, 2]`.
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

    /// Returns the values `[k]` of `aim` for the particles in `leaves` on a part of the batch, and the gradients of their
    /// sum with respect to `leaves`. Mixed gradients go into `mixing`.
    fn gradients(&self, leaves: &[Tensor], mixing: &Mixing, aim: Aim, of: Portion) -> Result<(Tensor, Vec<Tensor>)> {
        let weights = self.subspace.weights(&self.model.base, leaves);
        self.backward(weights, &leaves.iter().collect::<Vec<_>>(), mixing, aim, of)
    }

    /// Returns the same with these weights.
    pub(super) fn backward(
        &self,
        mut weights: Weights,
        leaves: &[&Tensor],
        mixing: &Mixing,
        aim: Aim,
        of: Portion,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let input = self.input.map(|t| of.cut(t));
        let forward = mixing.forward(&mut weights, of.particle, of.count);
        let losses = |features: &Tensor| self.value(aim, (&weights, features), of);
        if self.cut.recompute {
            let first = self.model.network.first_stage(self.subspace.layout());
            let segments = Segments { model: self.model, weights: &weights, forward, first };
            return segments.gradients(&input, leaves, losses);
        }
        let losses = losses(&self.model.features_of(&weights, &input)?);
        let gradients = forward.back(&losses.sum(losses.kind()), leaves)?;
        Ok((losses.detach(), gradients))
    }
}

impl Objective for Likelihood<'_> {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        self.evaluated(theta, 0, 0..self.parts())
    }

    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let mixing = self.mixing(theta, matrices)?;
        let own = self.over(theta, 0, 0..self.parts(), Aim::CrossEntropy, &mixing)?;
        let gradients = mixing.finish(&own.gradients);
        Ok(Mixed { own, gradients })
    }

    fn outputs(&mut self, theta: &Tensor) -> Result<Outputs> {
        let logits =
            self.seen(theta, self.model.head.classes(), |weights, input| self.model.logits_of(weights, input))?;
        let labels = self.labels.expand([theta.size()[0], -1], false);
        Ok(Outputs { logits, labels })
    }

    fn pull_back(&mut self, theta: &Tensor, by_logits: &Tensor) -> Result<Tensor> {
        self.pulled_back(theta, Aim::Product(by_logits))
    }

    fn head_inputs(&mut self, theta: &Tensor) -> Result<HeadInputs> {
        let head = &self.model.head;
        let inputs = |weights: &Weights, input: &Input| Ok(head.inputs(&self.model.features_of(weights, input)?));
        let features = self.seen(theta, head.weight.size()[1], inputs)?;
        let labels = self.labels.expand([theta.size()[0], -1], false);
        Ok(HeadInputs { features, labels })
    }

    fn pull_back_head_inputs(&mut self, theta: &Tensor, by_features: &Tensor) -> Result<Tensor> {
        self.pulled_back(theta, Aim::ProductAtHead(by_features))
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn share(&self, part: usize) -> f64 {
        let size = self.batch.div_ceil(self.cut.accumulate);
        size.min(self.batch - part * size) as f64 / self.batch as f64
    }

    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        self.evaluated(theta, 0, part..part + 1)
    }

    fn evaluate_flipped(&mut self, theta: &Tensor, noise: &Tensor, signs: Signs, part: usize) -> Result<Noisy> {
        let numbers = upload(&Tensor::arange(self.batch as i64, (Kind::Int64, Device::Cpu)), theta.device());
        self.flipped((theta, noise), (0, &numbers), signs, part)
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

const UNRECORDED: &str = "gradients mixed in weight space need what enters and leaves the layers of [subspace.low-rank], \
    which a module (checkpoint.kind = \"module\") does not show: set method.svgd.drive = \"own\" or \"shared\", or use [subspace.full]";

impl Likelihood<'_> {
    /// Returns the values `[k]` of `aim` for a portion whose features are `[k, b, d]`, or `[1, b, d]` if particles share them.
    fn value(&self, aim: Aim, (weights, features): (&Weights, &Tensor), of: Portion) -> Tensor {
        let head = &self.model.head;
        let kind = head.weight.kind();
        let product = |values: Tensor, by_values: &Tensor| {
            let factors = by_values.narrow(0, of.start, of.count).narrow(1, of.from, of.samples);
            (values * factors.to_kind(kind)).sum_dim_intlist([1i64, 2].as_slice(), false, kind)
        };
        match aim {
            Aim::CrossEntropy => {
                let losses = head.losses(weights, features, &of.cut(&self.labels));
                losses.expand([of.count, -1], false).mean_dim([1i64].as_slice(), false, kind) * of.weight
            }
            Aim::Product(by_logits) => product(head.logits(weights, features), by_logits),
            Aim::ProductAtHead(by_features) => product(head.inputs(features), by_features),
        }
    }

    /// Returns the losses and gradients of rows of theta over some parts. The first row is particle `first`.
    pub(super) fn evaluated(&self, theta: &Tensor, first: i64, parts: Range<usize>) -> Result<Evaluation> {
        self.over(theta, first, parts, Aim::CrossEntropy, &Mixing::none(self.subspace.layout()))
    }

    /// Returns the gradients `[k, P]` of a product, for rows of theta and all samples of this process.
    pub(super) fn pulled_back(&self, theta: &Tensor, aim: Aim) -> Result<Tensor> {
        let none = Mixing::none(self.subspace.layout());
        Ok(self.over(theta, 0, 0..self.parts.len(), aim, &none)?.gradients)
    }

    /// Returns what `see` gives of each portion, `[k, b, columns]` for rows of theta and all samples of this process, without
    /// a graph.
    fn seen(&self, theta: &Tensor, columns: i64, see: impl Fn(&Weights, &Input) -> Result<Tensor>) -> Result<Tensor> {
        let (layout, rows) = (self.subspace.layout(), theta.size()[0]);
        let shape = [rows, self.labels.size()[1], columns];
        let all = Tensor::zeros(shape, (self.model.head.weight.kind(), theta.device()));
        self.cutter.clamp(rows as usize);
        self.cutter.run(|cut| {
            for some in in_parts(0..rows as usize, cut.members) {
                let (start, count) = (some.start as i64, some.len() as i64);
                let leaves = layout.leaves(&theta.narrow(0, start, count), self.model.kind, false);
                let weights = self.subspace.weights(&self.model.base, &leaves);
                for samples in in_parts(0..shape[1] as usize, cut.images) {
                    let (from, samples) = (samples.start as i64, samples.len() as i64);
                    let of = Portion { particle: start, start, count, from, samples, weight: 1.0 };
                    let found = no_grad(|| see(&weights, &self.input.map(|t| of.cut(t))))?;
                    all.narrow(0, start, count).narrow(1, from, samples).copy_(&found);
                }
            }
            Ok(())
        })?;
        Ok(all)
    }

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
            let weights = self.subspace.weights(&self.model.base, &leaves);
            let losses = self.model.head.losses(&weights, &self.model.features_of(&weights, &input)?, &labels);
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
    pub(super) fn mixing(&self, theta: &Tensor, matrices: &Tensor) -> Result<Mixing<'_>> {
        let layout = self.subspace.layout();
        ensure!(layout.is_dense() || self.model.network.records_layers(), UNRECORDED);
        let (blocks, n) = (layout.blocks.len() as i64, theta.size()[0]);
        let size = matrices.size();
        ensure!(size == [blocks, n, n], "mixing matrices {size:?} for {blocks} blocks of {n} particles");
        Ok(Mixing::new(layout, theta, self.model.kind, matrices))
    }

    /// Returns the values of `aim` and their gradients for rows of theta over some parts; in a cross-entropy, each sample is
    /// weighted by its share of the batch. The first row is particle `first`. Mixed gradients go into `mixing`.
    pub(super) fn over(
        &self,
        theta: &Tensor,
        first: i64,
        parts: Range<usize>,
        aim: Aim,
        mixing: &Mixing,
    ) -> Result<Evaluation> {
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
                self.chunk(&theta.narrow(0, start, count), (first, start), samples, (aim, mixing), &rows)
            };
            // With mixing, a retry after running out of memory would add the mixed gradients twice.
            losses.push(if mixing.is_none() { self.cutter.run(chunk)? } else { chunk(self.cutter.cut())? });
            start += losses.last().map_or(0, |losses: &Tensor| losses.size()[0]);
        }
        Ok(Evaluation { losses: Tensor::cat(&losses, 0), gradients })
    }

    /// Returns the values `[k]` of `aim` for particles `theta: [k, P]` over some samples, and adds their gradients to
    /// `rows: [k, P]`. The first particle is row `start` of those in this process, and particle `first + start` of all.
    fn chunk(
        &self,
        theta: &Tensor,
        (first, start): (i64, i64),
        samples: impl Iterator<Item = Range<usize>>,
        (aim, mixing): (Aim, &Mixing),
        rows: &Tensor,
    ) -> Result<Tensor> {
        let layout = self.subspace.layout();
        let leaves = layout.leaves(theta, self.model.kind, true);
        let mut total = Tensor::zeros([theta.size()[0]], (Kind::Float, theta.device()));
        for samples in samples {
            let of = Portion {
                particle: first + start,
                start,
                count: theta.size()[0],
                from: samples.start as i64,
                samples: samples.len() as i64,
                weight: samples.len() as f64 / self.batch as f64,
            };
            let (losses, found) = self.gradients(&leaves, mixing, aim, of)?;
            layout.gather(&found, rows);
            total += losses;
        }
        Ok(total)
    }
}
