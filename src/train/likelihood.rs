//! The likelihood of a batch as the methods see it. [`super::shared`] splits it over several processes. For squared gradients of
//! single images, each image is passed through its own copy of the particle, so that one backward pass yields the gradients of several.

use std::ops::Range;
use std::rc::Rc;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::gradient::{Backward, Passes, Plain, Root, scaled};
use super::mixing::Mixing;
use crate::base::tensor::ROOM_TO_TRAIN;
use crate::data::batches::Batch;
use crate::machine::memory::{ChunkSize, Chunker};
use crate::machine::parallel::Shard;
use crate::methods::{Answer, Evaluation, Extended, Extra, Objective, Request, Target};
use crate::model::network::UNRECORDED;
use crate::model::{Input, Model};
use crate::predict::in_parts;
use crate::subspace::Subspace;
use crate::tasks::{Classes, Loss};

const MAGNIFIED: &str =
    "train.precision = \"f16\" scales losses, which only gradients of theta are divided by: use \"bf16\" or \"f32\"";

/// The model with its trained columns and its loss: the part that learns.
#[derive(Clone, Copy)]
pub struct Learner<'a> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub loss: &'a dyn Loss,
}

impl<'a> Learner<'a> {
    /// Returns the task that learns classes.
    pub fn of_classes(model: &'a Model, subspace: &'a dyn Subspace) -> Learner<'a> {
        Learner { model, subspace, loss: &Classes }
    }
}

/// The mean loss of one batch, or the share of it that this process computes.
pub struct Likelihood<'a> {
    pub(super) model: &'a Model,
    pub(super) subspace: &'a dyn Subspace,
    pub(super) loss: &'a dyn Loss,
    pub(super) passes: Passes,
    /// The number of particles and images that go through the network at once.
    pub(super) chunker: Rc<Chunker>,
    /// The input of b of the batch's B samples, with p = 1 if all particles see the same.
    pub(super) input: Input,
    /// The labels, `[p, b]`; for answers the places and tokens, `[p, b, A, 2]`.
    pub(super) labels: Tensor,
    /// The factors of the samples' losses, `[p, b]`; `None` if they are 1.
    pub(super) scale: Option<Tensor>,
    /// The factor by which losses are multiplied on the way back, and by which gradients are divided in f32.
    pub(super) magnified: f64,
    /// The range of these b samples in each part of the batch.
    pub(super) parts: Vec<Range<usize>>,
    /// The numbers of these b samples in the batch.
    pub(super) numbers: Vec<i64>,
    /// The size B of the batch.
    pub(super) batch: usize,
    /// The number of the first particle of this process.
    pub(super) first: i64,
}

impl<'a> Likelihood<'a> {
    /// Returns the likelihood of a batch of `orders` orders, one after the other.
    pub fn new(learner: Learner<'a>, passes: Passes, batch: &Batch, orders: i64) -> Likelihood<'a> {
        let labels = batch.labels.unflatten(0, [orders, -1].as_slice());
        Likelihood::on(learner, passes, Input::Stored(batch.samples.of_particles(orders)), labels)
    }

    /// Returns the likelihood of labels `[p, B]`, or of answers `[p, B, A, 2]`.
    pub fn on(learner: Learner<'a>, passes: Passes, input: Input, labels: Tensor) -> Likelihood<'a> {
        let Learner { model, subspace, loss } = learner;
        let (orders, batch) = (labels.size()[0] as usize, labels.size()[1] as usize);
        let members = if passes.particle_chunk == 0 { usize::MAX } else { passes.particle_chunk };
        let at_once = ChunkSize { members, images: batch.max(1) };
        let chunker = Rc::new(Chunker::fixed(at_once, "training step", ROOM_TO_TRAIN));
        let (parts, numbers, first) = (Vec::new(), Vec::new(), 0);
        let (scale, magnified) = (None, 1.0);
        let whole = Likelihood {
            model,
            subspace,
            loss,
            passes,
            chunker,
            input,
            labels,
            scale,
            magnified,
            parts,
            numbers,
            batch,
            first,
        };
        whole.of_share(&Shard::whole(orders), batch)
    }

    /// Returns the same likelihood, split as `chunker` has planned or learnt from earlier steps.
    pub fn chunked_by(self, chunker: Rc<Chunker>) -> Likelihood<'a> {
        Likelihood { chunker, ..self }
    }

    /// Returns the same likelihood, with factors of the losses of its samples, one for each order `[p]`.
    pub fn scaled_by(self, factors: &Tensor) -> Likelihood<'a> {
        let scale = factors.unsqueeze(1).expand(&self.labels.size()[..2], false);
        Likelihood { scale: Some(scale), ..self }
    }

    /// Returns the same likelihood, whose losses are multiplied by a factor on the way back, so that gradients in f16 do not vanish.
    pub fn magnified_by(self, factor: f64) -> Likelihood<'a> {
        Likelihood { magnified: factor, ..self }
    }

    /// Returns the same likelihood, with these samples as a process's share of a batch of `batch` samples.
    pub fn of_share(self, share: &Shard, batch: usize) -> Likelihood<'a> {
        let (mut parts, mut numbers) = (Vec::new(), Vec::new());
        for part in self.passes.samples(share, batch) {
            parts.push(numbers.len()..numbers.len() + part.len());
            numbers.extend(part.map(|sample| sample as i64));
        }
        Likelihood { parts, numbers, batch, first: share.rows.start as i64, ..self }
    }
}

impl Likelihood<'_> {
    /// Returns the parts of the batch that are requested.
    pub(super) fn parts_of(&self, request: &Request) -> Range<usize> {
        request.part.map_or(0..self.parts.len(), |part| part..part + 1)
    }

    /// Returns the mixing of the gradients of all particles by the requested `matrices: [L, n, n]`.
    ///
    /// # Errors
    /// Fails if the matrices have another shape, or if the network does not show the inputs of its layers.
    pub(super) fn mixing(&self, request: &Request, matrices: &Tensor) -> Result<Mixing<'_>> {
        let (theta, layout) = (request.theta, self.subspace.layout());
        let unshown =
            || format!("what enters and leaves the layers of [subspace.low-rank] is needed, and {UNRECORDED} shows it");
        ensure!(layout.is_dense() || self.model.network.records_layers(), request.refused(&unshown()));
        let (blocks, n) = (layout.blocks.len() as i64, theta.size()[0]);
        let size = matrices.size();
        ensure!(size == [blocks, n, n], "mixing matrices {size:?} for {blocks} blocks of {n} particles");
        Ok(Mixing::new(layout, theta, self.model.kind, matrices))
    }
}

impl Objective for Likelihood<'_> {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.theta;
        let parts = self.parts_of(request);
        ensure!(self.magnified == 1.0 || matches!(request.extra, Extra::None), request.refused(MAGNIFIED));
        self.check_input_gradients(request)?;
        Ok(match (request.target, request.extra) {
            (Target::Losses, Extra::None) => self.gradients(theta, parts, Root::Loss, None)?.into(),
            (Target::Losses, Extra::Squares) => self.squared(theta, parts)?.into(),
            (Target::Losses, Extra::Noise(noise)) => self.flipped(request, noise)?.into(),
            (Target::Losses, Extra::Mixing(matrices)) => {
                let mixing = self.mixing(request, matrices)?;
                let own = self.gradients(theta, parts, Root::Loss, Some(&mixing))?;
                mixing.finish(own).into()
            }
            (Target::Output(output), Extra::None) if request.part.is_none() => self.outputs_of(theta, output)?.into(),
            (Target::PullBack(output, by_output), Extra::None) if request.part.is_none() => {
                Answer::Gradients(self.gradients(theta, parts, Root::Product(output, by_output), None)?.gradients)
            }
            _ => {
                return Err(
                    request.refused("a training batch gives extras with losses, and outputs of the whole batch")
                );
            }
        })
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn share(&self, part: usize) -> f64 {
        let size = self.batch.div_ceil(self.passes.accumulate);
        size.min(self.batch - part * size) as f64 / self.batch as f64
    }
}

/// One particle, and the rows to which its gradients are added.
struct Particle {
    /// The row of the particle among those in this process.
    row: i64,
    /// The particle, `[1, P]`.
    theta: Tensor,
    /// The gradient, `[1, P]`.
    gradient: Tensor,
    /// The squared gradients of single images over the size of the batch, `[1, P]`.
    squares: Tensor,
}

impl Likelihood<'_> {
    /// Returns the losses and gradients of rows of theta over some parts, and the sum of squared gradients of their single
    /// images over the size of the batch.
    pub(super) fn squared(&self, theta: &Tensor, parts: Range<usize>) -> Result<Extended> {
        let (gradients, squares) = (theta.zeros_like(), theta.zeros_like());
        let mut losses = Vec::new();
        for row in 0..theta.size()[0] {
            let of = |all: &Tensor| all.narrow(0, row, 1);
            let particle = Particle { row, theta: of(theta), gradient: of(&gradients), squares: of(&squares) };
            losses.push(self.squares_of(&particle, parts.clone())?);
        }
        Ok(Extended { own: Evaluation { losses: Tensor::stack(&losses, 0), gradients }, extra: squares })
    }

    /// Returns the loss of a particle, and adds its gradients.
    fn squares_of(&self, particle: &Particle, parts: Range<usize>) -> Result<Tensor> {
        let Particle { row, theta, gradient, squares } = particle;
        let (layout, batch) = (self.subspace.layout(), self.batch as f64);
        let at_once = layout.copies_at_once().min(self.chunker.cut().images);
        let mut total = Tensor::zeros([0i64; 0], (Kind::Float, theta.device()));
        for samples in self.parts[parts].iter().flat_map(|part| in_parts(part.clone(), at_once)) {
            let count = samples.len() as i64;
            let own = |t: &Tensor| {
                let rows = if t.size()[0] == 1 { t.shallow_clone() } else { t.narrow(0, *row, 1) };
                rows.narrow(1, samples.start as i64, count).transpose(0, 1)
            };
            let (input, labels) = (self.input.map(own), own(&self.labels));
            let leaves = layout.leaves(&theta.expand([count, -1], false), self.model.kind, true);
            let weights = self.subspace.weights(&self.model.base, &leaves);
            let features = self.model.features_of(&weights, &input)?;
            let losses = self.loss.losses(&self.model.head, &weights, &features, &labels);
            let losses = scaled(losses, self.scale.as_ref().map(own).as_ref());
            let loss = losses.sum(losses.kind());
            let each = Tensor::zeros([count, layout.parameters()], (theta.kind(), theta.device()));
            layout.gather(&Plain.run(&loss, &leaves.iter().collect::<Vec<_>>())?, &each);
            let sum = |rows: &Tensor| rows.sum_dim_intlist([0i64].as_slice(), true, rows.kind()) / batch;
            let _ = gradient.shallow_clone().g_add_(&sum(&each));
            let _ = squares.shallow_clone().g_add_(&sum(&each.square()));
            total += loss.detach() / batch;
        }
        Ok(total)
    }
}
