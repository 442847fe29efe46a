//! Gradients mixed in weight space: Φ_i = Σ_j c_ij G_j with G_j = ∂L_j/∂W_j, carried into particle i's own columns by the
//! chain rule. For W_i = W_0 + s B_i A_i these are s Φ_i A_iᵀ and s B_iᵀ Φ_i; for dense columns Φ_i itself.
//!
//! The particles' own backward passes δ_j, the gradient by a layer's output, and G_j = δ_jᵀ x_j with the layer's input x_j:
//! no second backward is needed, and no G_j where n is small.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::wide;
use crate::model::network::weights::{Tap, Tape, Weights};
use crate::subspace::{Block, Layout, Shape};

/// The factors of all particles, and what the mixed gradients add up to.
pub struct Mixing<'a> {
    layout: &'a Layout,
    low_rank: HashMap<&'a str, Factors<'a>>,
    /// c, `[L, n, n]`.
    matrices: Tensor,
    /// `[n, P]`.
    gradients: Tensor,
    tape: Tape,
}

/// A low-rank block of all particles.
struct Factors<'a> {
    block: &'a Block,
    /// A, `[n, rank, in]`.
    a: Tensor,
    /// Bᵀ, `[n, rank, out]`.
    b: Tensor,
    /// s c, `[n, n]`.
    shares: Tensor,
}

impl<'a> Mixing<'a> {
    /// Nothing to mix.
    pub fn none(layout: &'a Layout) -> Mixing<'a> {
        let empty = || Tensor::zeros([0], tch::kind::FLOAT_CPU);
        Mixing { layout, low_rank: HashMap::new(), matrices: empty(), gradients: empty(), tape: Tape::default() }
    }

    /// For all particles `theta: [n, P]`, in the compute type `kind`, with a matrix c a block `[L, n, n]`.
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

    /// Whether nothing is mixed.
    pub fn is_none(&self) -> bool {
        self.matrices.numel() == 0
    }

    /// A forward of particles `start..start + count` with `weights`, whose way back is mixed.
    pub fn forward(&self, weights: &mut Weights, start: i64, count: i64) -> Forward<'_> {
        if !self.low_rank.is_empty() {
            weights.record(&self.tape);
        }
        Forward { mixing: self, start, count }
    }

    /// Replaces the gradients `[n, P]` by their sum over processes.
    pub fn sum(&mut self, over: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<()> {
        self.gradients = over(self.gradients.shallow_clone())?;
        Ok(())
    }

    /// The mixed gradients `[n, P]`, where those of dense blocks are mixed from the particles' own `[n, P]`.
    pub fn finish(self, own: &Tensor) -> Tensor {
        for (index, block) in self.layout.blocks.iter().enumerate().filter(|(_, b)| b.shape == Shape::Dense) {
            let columns = |t: &Tensor| t.narrow(1, block.columns.start, block.columns.end - block.columns.start);
            let matrix = self.matrices.get(index as i64).to_kind(own.kind());
            columns(&self.gradients).copy_(&matrix.matmul(&columns(own)));
        }
        self.gradients
    }

    /// Adds to the gradients of all particles' A `[n, rank, in]` and, from output row `from` on, B `[n, rank, rows]`.
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

/// A forward of some particles.
pub struct Forward<'a> {
    mixing: &'a Mixing<'a>,
    start: i64,
    count: i64,
}

impl Forward<'_> {
    /// Forgets what was recorded without a graph.
    pub fn forget(&self) {
        self.mixing.tape.take();
    }

    /// Gradients of `root` by `leaves`, undefined for those that it does not depend on; what it sends back through low-rank
    /// layers since the last time is mixed.
    ///
    /// # Errors
    /// Those of libtorch; a root that depends on no leaf.
    pub fn back(&self, root: &Tensor, leaves: &[&Tensor]) -> Result<Vec<Tensor>> {
        // A root without a graph would be a segmentation fault.
        ensure!(root.requires_grad(), "the loss does not depend on any trainable parameter");
        let mut taps = self.mixing.tape.take();
        taps.retain(|tap| self.mixing.low_rank.contains_key(tap.layer.as_str()));
        let inputs: Vec<&Tensor> = leaves.iter().copied().chain(taps.iter().map(|tap| &tap.output)).collect();
        let mut gradients = Tensor::f_run_backward(&[root], &inputs, false, false)?;
        let by_outputs = gradients.split_off(leaves.len());
        for (tap, gradient) in taps.into_iter().zip(by_outputs).filter(|(_, gradient)| gradient.defined()) {
            self.mix(&tap, &gradient);
        }
        Ok(gradients)
    }

    /// Adds what one use of a layer contributes; `gradient: [k, B, T, rows]` is by its output.
    fn mix(&self, tap: &Tap, gradient: &Tensor) {
        let Factors { block, a, b, shares } = &self.mixing.low_rank[tap.layer.as_str()];
        let flat = |t: &Tensor| t.detach().flatten(1, 2);
        let found = LayerGradients { x: flat(&tap.input), delta: flat(gradient) };
        let rows = found.delta.size()[2];
        let (b, shares) = (b.narrow(2, tap.from, rows), shares.narrow(1, self.start, self.count));
        let (by_a, by_b) = if found.worth_forming(a) {
            found.through_gradients(a, &b, &shares)
        } else {
            found.through_factors(a, &b, &shares)
        };
        self.mixing.add(block, tap.from, &by_a, &by_b);
    }
}

/// G_j = δ_jᵀ x_j of the k particles of a forward, not formed.
struct LayerGradients {
    /// `[p, M, in]`, p = 1 where it is the same for all particles.
    x: Tensor,
    /// δ, `[k, M, rows]`.
    delta: Tensor,
}

impl LayerGradients {
    /// Whether forming G_j takes fewer operations: its cost does not grow with n, that of going through n factors does.
    fn worth_forming(&self, a: &Tensor) -> bool {
        let (n, rank, inputs) = (a.size()[0], a.size()[1], a.size()[2]);
        let (count, samples, rows) = (self.delta.size()[0], self.delta.size()[1], self.delta.size()[2]);
        let through_factors = 2 * count * samples * n * rank * (inputs + rows);
        let through_gradients = rows * inputs * (count * samples + n * count + 2 * n * rank);
        through_gradients < through_factors
    }

    /// Gradients by A `[n, rank, in]` and Bᵀ `[n, rank, rows]` of all n particles, for s c `[n, k]`: every particle's δ_j and
    /// x_j are taken to the ranks of all others.
    fn through_factors(&self, a: &Tensor, b: &Tensor, shares: &Tensor) -> (Tensor, Tensor) {
        let (n, rank) = (a.size()[0], a.size()[1]);
        let (count, samples, rows) = (self.delta.size()[0], self.delta.size()[1], self.delta.size()[2]);
        let inputs = a.size()[2];
        // [k, 1, n·rank]
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
        (by_a.view([n, rank, inputs]), by_b.view([n, rank, rows]))
    }

    /// The same by the definition: G_j, Φ_i, chain rule, some output rows at a time.
    fn through_gradients(&self, a: &Tensor, b: &Tensor, shares: &Tensor) -> (Tensor, Tensor) {
        /// Values of all G_j and Φ_i together.
        const VALUES: i64 = 1 << 24;
        let (n, inputs) = (a.size()[0], a.size()[2]);
        let (count, samples, rows) = (self.delta.size()[0], self.delta.size()[1], self.delta.size()[2]);
        let x = self.x.expand([count, samples, inputs], false);
        // A sum over many parts, so in f32 where the rest is in bf16.
        let (mut by_a, by_b) = (a.zeros_like().to_kind(wide(a.kind())), b.zeros_like());
        let part = (VALUES / ((n + count) * inputs)).clamp(1, rows);
        for from in (0..rows).step_by(part as usize) {
            let length = part.min(rows - from);
            let own = self.delta.narrow(2, from, length).transpose(1, 2).bmm(&x);
            let mixed = shares.matmul(&own.view([count, -1])).view([n, length, inputs]);
            by_a += b.narrow(2, from, length).bmm(&mixed).to_kind(by_a.kind());
            by_b.narrow(2, from, length).copy_(&a.bmm(&mixed.transpose(1, 2)));
        }
        (by_a, by_b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(a: &Tensor, b: &Tensor) -> f64 {
        f64::try_from((a - b).abs().max() / b.abs().max()).unwrap()
    }

    /// Both ways to the same sums, for inputs of each particle and for one of all, with more rows than one part takes.
    #[test]
    fn both_ways_agree() {
        tch::manual_seed(1);
        let random = |shape: &[i64]| Tensor::randn(shape, tch::kind::DOUBLE_CPU);
        let (n, rank, inputs, rows, count, samples) = (5, 3, 1 << 11, 900, 4, 6);
        let (a, b, shares) = (random(&[n, rank, inputs]), random(&[n, rank, rows]), random(&[n, count]));
        for shared in [1, count] {
            let used = LayerGradients { x: random(&[shared, samples, inputs]), delta: random(&[count, samples, rows]) };
            let (formed, direct) = (used.through_gradients(&a, &b, &shares), used.through_factors(&a, &b, &shares));
            assert!(largest(&direct.0, &formed.0) < 1e-12 && largest(&direct.1, &formed.1) < 1e-12);
            let half = |tensor: &Tensor| tensor.to_kind(Kind::BFloat16);
            let used = LayerGradients { x: half(&used.x), delta: half(&used.delta) };
            let rough = used.through_gradients(&half(&a), &half(&b), &half(&shares));
            assert!(largest(&rough.0, &formed.0) < 1e-2 && largest(&rough.1, &formed.1) < 1e-2);
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
