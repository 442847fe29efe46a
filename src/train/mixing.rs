//! Gradients mixed in weight space: Φ_i = Σ_j c_ij G_j with G_j = ∂L_j/∂W_j, mapped to the columns of particle i by the
//! chain rule. For W_i = W_0 + s B_i A_i the gradients are s Φ_i A_iᵀ and s B_iᵀ Φ_i; for dense columns the gradient is
//! Φ_i itself.
//!
//! The backward passes of the particles give δ_j, the gradient with respect to the output of a layer, and
//! G_j = δ_jᵀ x_j with the input x_j of the layer. So no second backward pass is needed, and for small n the G_j are
//! not formed.

use std::collections::HashMap;

use anyhow::Result;
use tch::{Kind, Tensor};

use super::gradient::{Backward, Plain, Slice};
use crate::base::tensor::wide;
use crate::methods::{Evaluation, Extended};
use crate::model::network::{Tap, Tape, Weights};
use crate::subspace::{Block, Layout, Shape};

/// The low-rank factors of all particles, and the sum of their mixed gradients.
pub struct Mixing<'a> {
    layout: &'a Layout,
    low_rank: HashMap<&'a str, Factors<'a>>,
    /// The mixing coefficients c, `[L, n, n]`.
    matrices: Tensor,
    /// The mixed gradients so far, `[n, P]`.
    gradients: Tensor,
    tape: Tape,
}

/// The factors of a low-rank block for all particles.
struct Factors<'a> {
    block: &'a Block,
    /// The factors A, `[n, rank, in]`.
    a: Tensor,
    /// The factors Bᵀ, `[n, rank, out]`.
    b: Tensor,
    /// The scaled coefficients s c, `[n, n]`.
    shares: Tensor,
}

impl<'a> Mixing<'a> {
    /// Prepares the mixing for all particles `theta: [n, P]` in the compute type `kind`, with one matrix c per block,
    /// `[L, n, n]`.
    pub fn new(layout: &'a Layout, theta: &Tensor, kind: Kind, matrices: &Tensor) -> Mixing<'a> {
        let factors = |(index, block): (usize, &'a Block)| match block.shape {
            Shape::LowRank { rank, inputs, outputs, scale } => {
                let n = theta.size()[0];
                let columns = |offset: i64, length: i64| {
                    theta.narrow(1, block.columns.start + offset, length).detach().to_kind(kind)
                };
                let a = columns(0, rank * inputs).reshape([n, rank, inputs]);
                let b = columns(rank * inputs, outputs * rank).reshape([n, outputs, rank]);
                let b = b.transpose(1, 2).contiguous();
                let shares = (matrices.get(index as i64) * scale).to_kind(kind);
                Some((block.name.as_str(), Factors { block, a, b, shares }))
            }
            Shape::Dense => None,
        };
        let low_rank = layout.blocks.iter().enumerate().filter_map(factors).collect();
        let (matrices, gradients) = (matrices.shallow_clone(), theta.detach().zeros_like());
        Mixing { layout, low_rank, matrices, gradients, tape: Tape::default() }
    }

    /// Starts a forward pass of the particles of a slice with `weights`, whose backward pass is mixed.
    pub fn forward(&self, weights: &mut Weights, slice: Slice) -> Forward<'_> {
        if !self.low_rank.is_empty() {
            weights.record(&self.tape);
        }
        Forward { mixing: self, slice }
    }

    /// Replaces the gradients `[n, P]` by their sum over processes.
    pub fn sum(&mut self, over: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<()> {
        self.gradients = over(self.gradients.shallow_clone())?;
        Ok(())
    }

    /// Returns the particles' own losses and gradients with the mixed gradients. Those of dense blocks are mixed from their own.
    pub fn finish(self, own: Evaluation) -> Extended {
        for (index, block) in self.layout.blocks.iter().enumerate().filter(|(_, b)| b.shape == Shape::Dense) {
            let columns = |t: &Tensor| t.narrow(1, block.columns.start, block.columns.end - block.columns.start);
            let matrix = self.matrices.get(index as i64).to_kind(own.gradients.kind());
            columns(&self.gradients).copy_(&matrix.matmul(&columns(&own.gradients)));
        }
        Extended { own, extra: self.gradients }
    }

    /// Adds to the gradients of all particles' A `[n, rank, in]`, and to those of Bᵀ `[n, rank, rows]` from output row
    /// `from` on.
    fn add(&self, block: &Block, from: i64, a: &Tensor, b: &Tensor) {
        let (n, rank, inputs) = (a.size()[0], a.size()[1], a.size()[2]);
        let add = |offset: i64, gradient: Tensor| {
            let gradient = gradient.reshape([n, -1]).to_kind(self.gradients.kind());
            let mut target = self.gradients.narrow(1, block.columns.start + offset, gradient.size()[1]);
            let _ = target.g_add_(&gradient);
        };
        add(0, a.shallow_clone());
        add(rank * inputs + from * rank, b.transpose(1, 2));
    }
}

/// A forward pass of some particles.
pub struct Forward<'a> {
    mixing: &'a Mixing<'a>,
    slice: Slice,
}

impl Backward for Forward<'_> {
    /// Also mixes the gradients of all low-rank layers used since the last call.
    fn run(&self, root: &Tensor, leaves: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut taps = self.mixing.tape.take();
        taps.retain(|tap| self.mixing.low_rank.contains_key(tap.layer.as_str()));
        let inputs: Vec<&Tensor> = leaves.iter().copied().chain(taps.iter().map(|tap| &tap.output)).collect();
        let mut gradients = Plain.run(root, &inputs)?;
        let by_outputs = gradients.split_off(leaves.len());
        for (tap, gradient) in taps.into_iter().zip(by_outputs).filter(|(_, gradient)| gradient.defined()) {
            self.mix(&tap, &gradient);
        }
        Ok(gradients)
    }

    fn forget(&self) {
        self.mixing.tape.take();
    }
}

impl Forward<'_> {
    /// Adds the contribution of one use of a layer; `gradient: [k, B, T, rows]` is with respect to its output.
    fn mix(&self, tap: &Tap, gradient: &Tensor) {
        let Factors { block, a, b, shares } = &self.mixing.low_rank[tap.layer.as_str()];
        let flat = |t: &Tensor| t.detach().flatten(1, 2);
        let found = LayerGradients { x: flat(&tap.input), delta: flat(gradient) };
        let rows = found.delta.size()[2];
        let (b, shares) = (b.narrow(2, tap.from, rows), shares.narrow(1, self.slice.particle, self.slice.count));
        let FactorGradients { by_a, by_b } = if found.worth_forming(a) {
            found.through_gradients(a, &b, &shares)
        } else {
            found.through_factors(a, &b, &shares)
        };
        self.mixing.add(block, tap.from, &by_a, &by_b);
    }
}

/// The gradients of A `[n, rank, in]` and Bᵀ `[n, rank, rows]` of n particles.
struct FactorGradients {
    by_a: Tensor,
    by_b: Tensor,
}

/// The gradients G_j = δ_jᵀ x_j of the k particles of a forward pass, not formed.
struct LayerGradients {
    /// The inputs x, `[p, M, in]`, with p = 1 if they are the same for all particles.
    x: Tensor,
    /// The gradients δ, `[k, M, rows]`.
    delta: Tensor,
}

impl LayerGradients {
    /// Returns whether forming G_j takes fewer operations. Its cost does not grow with n, unlike that of using the
    /// factors.
    fn worth_forming(&self, a: &Tensor) -> bool {
        let (n, rank, inputs) = (a.size()[0], a.size()[1], a.size()[2]);
        let (count, samples, rows) = (self.delta.size()[0], self.delta.size()[1], self.delta.size()[2]);
        let through_factors = 2 * count * samples * n * rank * (inputs + rows);
        let through_gradients = rows * inputs * (count * samples + n * count + 2 * n * rank);
        through_gradients < through_factors
    }

    /// Returns the gradients of A and Bᵀ for all n particles, given s c `[n, k]`. It projects δ_j and x_j of each particle onto the
    /// factors of all particles.
    fn through_factors(&self, a: &Tensor, b: &Tensor, shares: &Tensor) -> FactorGradients {
        let (n, rank) = (a.size()[0], a.size()[1]);
        let (count, samples, rows) = (self.delta.size()[0], self.delta.size()[1], self.delta.size()[2]);
        let inputs = a.size()[2];
        // The shape is now `[k, 1, n·rank]`.
        let shares = shares.tr().unsqueeze(2).expand([-1, -1, rank], false).reshape([count, 1, n * rank]);
        let (x, delta) = (self.x.reshape([-1, inputs]), self.delta.reshape([-1, rows]));
        let low_x = x.matmul(&a.reshape([n * rank, inputs]).tr()).view([-1, samples, n * rank]) * &shares;
        let by_b = low_x.reshape([-1, n * rank]).tr().matmul(&delta);
        let low_delta = delta.matmul(&b.reshape([n * rank, rows]).tr()).view([count, samples, n * rank]) * &shares;
        let low_delta = match self.x.size()[0] {
            1 => low_delta.sum_dim_intlist([0i64].as_slice(), false, low_delta.kind()),
            _ => low_delta,
        };
        let by_a = low_delta.reshape([-1, n * rank]).tr().matmul(&x);
        FactorGradients { by_a: by_a.view([n, rank, inputs]), by_b: by_b.view([n, rank, rows]) }
    }

    /// Returns the same by definition: G_j, Φ_i and the chain rule, for some output rows at a time.
    fn through_gradients(&self, a: &Tensor, b: &Tensor, shares: &Tensor) -> FactorGradients {
        /// The largest number of values in all G_j and Φ_i together.
        const VALUES: i64 = 1 << 24;
        let (n, inputs) = (a.size()[0], a.size()[2]);
        let (count, samples, rows) = (self.delta.size()[0], self.delta.size()[1], self.delta.size()[2]);
        let x = self.x.expand([count, samples, inputs], false);
        // This is a sum over many parts, so it is in f32 even if the rest is in bf16.
        let (mut by_a, by_b) = (a.zeros_like().to_kind(wide(a.kind())), b.zeros_like());
        let part = (VALUES / ((n + count) * inputs)).clamp(1, rows);
        for from in (0..rows).step_by(part as usize) {
            let length = part.min(rows - from);
            let own = self.delta.narrow(2, from, length).transpose(1, 2).bmm(&x);
            let mixed = shares.matmul(&own.view([count, -1])).view([n, length, inputs]);
            by_a += b.narrow(2, from, length).bmm(&mixed).to_kind(by_a.kind());
            by_b.narrow(2, from, length).copy_(&a.bmm(&mixed.transpose(1, 2)));
        }
        FactorGradients { by_a, by_b }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(a: &Tensor, b: &Tensor) -> f64 {
        f64::try_from((a - b).abs().max() / b.abs().max()).unwrap()
    }

    /// Checks that both ways give the same sums, for inputs of each particle and for shared ones, with more rows than
    /// one part takes.
    #[test]
    fn both_ways_agree() {
        tch::manual_seed(1);
        let random = |shape: &[i64]| Tensor::randn(shape, tch::kind::DOUBLE_CPU);
        let (n, rank, inputs, rows, count, samples) = (5, 3, 1 << 11, 900, 4, 6);
        let (a, b, shares) = (random(&[n, rank, inputs]), random(&[n, rank, rows]), random(&[n, count]));
        for shared in [1, count] {
            let used = LayerGradients { x: random(&[shared, samples, inputs]), delta: random(&[count, samples, rows]) };
            let (formed, direct) = (used.through_gradients(&a, &b, &shares), used.through_factors(&a, &b, &shares));
            assert!(largest(&direct.by_a, &formed.by_a) < 1e-12 && largest(&direct.by_b, &formed.by_b) < 1e-12);
            let half = |tensor: &Tensor| tensor.to_kind(Kind::BFloat16);
            let used = LayerGradients { x: half(&used.x), delta: half(&used.delta) };
            let rough = used.through_gradients(&half(&a), &half(&b), &half(&shares));
            assert!(largest(&rough.by_a, &formed.by_a) < 1e-2 && largest(&rough.by_b, &formed.by_b) < 1e-2);
        }
    }

    #[test]
    fn gradients_are_formed_for_many_particles_only() {
        let empty = |shape: &[i64]| Tensor::zeros(shape, tch::kind::FLOAT_CPU);
        let forms = |n: i64| {
            let used = LayerGradients { x: empty(&[n, 400, 192]), delta: empty(&[n, 400, 768]) };
            used.worth_forming(&empty(&[n, 4, 192]))
        };
        assert!(!forms(5) && forms(50));
    }
}
