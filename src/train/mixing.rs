//! Gradients mixed in weight space: Φ_i = Σ_j c_ij G_j with G_j = ∂L_j/∂W_j, carried into particle i's own columns by the
//! chain rule. For W_i = W_0 + s B_i A_i these are s Φ_i A_iᵀ and s B_iᵀ Φ_i; for dense columns Φ_i itself.
//!
//! The low-rank ones come out of the particles' own backward as gradients of zero tensors ([`Probe`]).

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::backbone::low_rank::Probe;
use crate::backbone::weights::Weights;
use crate::subspace::{Block, Layout, Shape};

/// The zero tensors of one evaluation, and what their gradients add up to.
pub struct Mixing<'a> {
    layout: &'a Layout,
    probes: Vec<Probed<'a>>,
    /// c, `[L, n, n]`.
    matrices: Tensor,
    /// `[n, P]`.
    gradients: Tensor,
}

/// A low-rank block with its zero tensors.
struct Probed<'a> {
    block: &'a Block,
    rank: i64,
    /// `[n·rank, in]`.
    a: Tensor,
    /// `[n·rank, out]`.
    b: Tensor,
    e: Tensor,
    f: Tensor,
    /// s c_ij, `[n, n]` (j, i).
    shares: Tensor,
}

impl<'a> Mixing<'a> {
    /// Nothing to mix.
    pub fn none(layout: &'a Layout) -> Mixing<'a> {
        let empty = || Tensor::zeros([0], tch::kind::FLOAT_CPU);
        Mixing { layout, probes: Vec::new(), matrices: empty(), gradients: empty() }
    }

    /// For all particles `theta: [n, P]`, in the compute type `kind`, with a matrix c a block `[L, n, n]`.
    pub fn new(layout: &'a Layout, theta: &Tensor, kind: Kind, matrices: &Tensor) -> Mixing<'a> {
        let probed = |(index, block): (usize, &'a Block)| match block.shape {
            Shape::LowRank { rank, inputs, outputs, scale } => {
                let n = theta.size()[0];
                let columns = |offset: i64, length: i64| {
                    theta.narrow(1, block.columns.start + offset, length).detach().to_kind(kind)
                };
                let a = columns(0, rank * inputs).reshape([n * rank, inputs]);
                let b = columns(rank * inputs, outputs * rank).view([n, outputs, rank]);
                let b = b.transpose(1, 2).reshape([n * rank, outputs]);
                let zeros = |like: &Tensor| like.zeros_like().set_requires_grad(true);
                let shares = (matrices.get(index as i64).transpose(0, 1) * scale).to_kind(kind);
                Some(Probed { block, rank, e: zeros(&b), f: zeros(&a), a, b, shares })
            }
            Shape::Dense => None,
        };
        let probes = layout.blocks.iter().enumerate().filter_map(probed).collect();
        Mixing { layout, probes, matrices: matrices.shallow_clone(), gradients: theta.detach().zeros_like() }
    }

    /// Adds the zero terms to a forward of particles `start..start + count`.
    pub fn attach(&self, weights: &mut Weights, start: i64, count: i64) {
        for Probed { block, rank, a, b, e, f, shares } in &self.probes {
            let shares = shares.narrow(0, start, count).unsqueeze(2).expand([-1, -1, *rank], false);
            let [a, b, e, f] = [a, b, e, f].map(Tensor::shallow_clone);
            weights.probe(&block.name, Probe { a, b, e, f, shares: shares.reshape([count, -1]) });
        }
    }

    /// The zero tensors, to be differentiated by.
    pub fn leaves(&self) -> impl Iterator<Item = &Tensor> {
        self.probes.iter().flat_map(|probed| [&probed.e, &probed.f])
    }

    /// Adds the gradients by [`leaves`](Self::leaves); one of a layer that the loss does not reach is undefined, and zero.
    pub fn gather(&self, gradients: &[Tensor]) {
        for (Probed { block, rank, a, b, .. }, pair) in self.probes.iter().zip(gradients.chunks_exact(2)) {
            let (inputs, outputs) = (a.size()[1], b.size()[1]);
            let n = a.size()[0] / rank;
            let add = |offset: i64, gradient: Tensor| {
                let gradient = gradient.reshape([n, -1]).to_kind(self.gradients.kind());
                let mut target = self.gradients.narrow(1, block.columns.start + offset, gradient.size()[1]);
                let _ = target.g_add_(&gradient);
            };
            if pair[0].defined() {
                add(rank * inputs, pair[0].view([n, *rank, outputs]).transpose(1, 2));
            }
            if pair[1].defined() {
                add(0, pair[1].shallow_clone());
            }
        }
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
}
