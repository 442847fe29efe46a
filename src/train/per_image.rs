//! Squared gradients of single images. Each image is passed through its own copy of the particle, so that one backward pass
//! yields the gradients of several.

use std::ops::Range;

use anyhow::Result;
use tch::{Kind, Tensor};

use super::gradient::{Backward, Plain};
use super::likelihood::Likelihood;
use crate::methods::{Evaluation, Extended};
use crate::predict::in_parts;

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
            let losses = self.task.losses(&self.model.head, &weights, &features, &labels);
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
